/** Published tensors of classes that name them otherwise, shrunken: each value is where the decoder asks for it. */
import { describe, expect, it } from 'vitest';
import { openCheckpoint } from '../../src/decoder/checkpoint.js';
import { forward } from '../../src/decoder/reference/forward.js';
import { loadModel } from '../../src/decoder/reference/model.js';
import { HRM_TEXT, IQUEST_LOOP, KOHRM, LOOPCODER_V2, LOOPUS, LUMMA, PHI_4 } from '../geometry/configs.js';
import { randomOf, SEED } from '../gpu/random.js';
import { modelFolder, removeTemporary, type PlainTensor } from './files.js';

removeTemporary();

const SMALL = { hidden_size: 16, intermediate_size: 24, head_dim: 8, vocab_size: 19, max_position_embeddings: 64 };
const CODER = { ...SMALL, num_attention_heads: 4, num_key_value_heads: 2, num_hidden_layers: 2 };
const HRM = {
  ...SMALL,
  num_attention_heads: 2,
  num_hidden_layers: 4,
  num_layers_per_stack: 2,
  H_cycles: 1,
  L_cycles: 2,
};

const coderLayer = (i: number): Record<string, number[]> =>
  Object.fromEntries(
    Object.entries({
      'self_attn.q_proj': [32, 16],
      'self_attn.k_proj': [16, 16],
      'self_attn.v_proj': [16, 16],
      'self_attn.o_proj': [16, 32],
      'mlp.gate_proj': [24, 16],
      'mlp.up_proj': [24, 16],
      'mlp.down_proj': [16, 24],
      input_layernorm: [16],
      post_attention_layernorm: [16],
    }).map(([part, shape]) => [`model.layers.${i}.${part}.weight`, shape]),
  );
const AROUND = { 'model.embed_tokens.weight': [19, 16], 'lm_head.weight': [19, 16] };
const CODERS = { ...AROUND, 'model.norm.weight': [16], ...coderLayer(0), ...coderLayer(1) };
const headNorms = (i: number): [string, number[]][] =>
  ['q_norm', 'k_norm'].map((norm) => [`model.layers.${i}.self_attn.${norm}.weight`, [8]]);
const hrmLayer = (stack: 'L' | 'H', i: number): Record<string, number[]> => ({
  [`model.${stack}_module.layers.${i}.attn.gqkv_proj.weight`]: [64, 16],
  [`model.${stack}_module.layers.${i}.attn.o_proj.weight`]: [16, 16],
  [`model.${stack}_module.layers.${i}.mlp.gate_up_proj.weight`]: [48, 16],
  [`model.${stack}_module.layers.${i}.mlp.down_proj.weight`]: [16, 24],
});
const HRMS = { ...AROUND, ...hrmLayer('L', 0), ...hrmLayer('L', 1), ...hrmLayer('H', 0), ...hrmLayer('H', 1) };

const LDS = {
  'encoder.embed_tokens.weight': [19, 16],
  'reasoning.gate.dt_input_proj.weight': [1, 16],
  'reasoning.gate.delta_proj.weight': [16, 1],
  'reasoning.gate.delta_proj.bias': [16],
  'reasoning.gate.A_log': [16],
  'decoder.norm.weight': [16],
  'decoder.lm_head.weight': [19, 16],
  'q_head.0.weight': [16],
  'q_head.0.bias': [16],
  'q_head.1.weight': [1, 16],
  'q_head.1.bias': [1],
};

const random = randomOf(SEED);
function weightsOf(shapes: Record<string, readonly number[]>): Record<string, PlainTensor> {
  return Object.fromEntries(
    Object.entries(shapes).map(([name, shape]) => [
      name,
      {
        dtype: 'F32',
        shape: [...shape],
        values: Array.from({ length: shape.reduce((a, b) => a * b) }, () => random.whole(-99, 99) / 64),
      },
    ]),
  );
}

/** Where the decoder's tensors are: rows [from, …) of a published one. */
type Where = Readonly<Record<string, readonly [tensor: string, from?: number]>>;

describe(`published tensors (seed ${SEED})`, () => {
  it.each<[string, object, Record<string, readonly number[]>, Where]>([
    [
      'HRM-Text',
      { ...HRM_TEXT, ...HRM },
      { ...HRMS, 'model.z_L_init': [16] },
      {
        'model.z_L_init': ['model.z_L_init'],
        'model.layers.1.self_attn.gate_proj.weight': ['model.L_module.layers.1.attn.gqkv_proj.weight'],
        'model.layers.2.self_attn.q_proj.weight': ['model.H_module.layers.0.attn.gqkv_proj.weight', 16],
        'model.layers.3.self_attn.k_proj.weight': ['model.H_module.layers.1.attn.gqkv_proj.weight', 32],
        'model.layers.0.self_attn.v_proj.weight': ['model.L_module.layers.0.attn.gqkv_proj.weight', 48],
        'model.layers.0.self_attn.o_proj.weight': ['model.L_module.layers.0.attn.o_proj.weight'],
        'model.layers.3.mlp.gate_proj.weight': ['model.H_module.layers.1.mlp.gate_up_proj.weight'],
        'model.layers.2.mlp.up_proj.weight': ['model.H_module.layers.0.mlp.gate_up_proj.weight', 24],
        'lm_head.weight': ['lm_head.weight'],
      },
    ],
    [
      'IQuest-Coder-Loop',
      { ...IQUEST_LOOP, ...CODER },
      {
        ...CODERS,
        'model.gate_projections.0.weight': [4, 8],
        'model.gate_projections.0.bias': [4],
        'model.gate_projections.1.weight': [4, 8],
        'model.gate_projections.1.bias': [4],
      },
      { 'model.gate_projections.1.weight': ['model.gate_projections.1.weight'] },
    ],
    [
      'LoopCoder-V2',
      { ...LOOPCODER_V2, ...CODER },
      Object.fromEntries([
        ...Object.entries(CODERS),
        ...[0, 1].flatMap((i): [string, number[]][] => [
          [`model.layers.${i}.self_attn.plt_gate.weight`, [4, 16]],
          [`model.layers.${i}.self_attn.plt_gate.bias`, [4]],
          [`model.layers.${i}.self_attn.plt_gate.gate_norm.weight`, [16]],
        ]),
      ]),
      {
        'model.gate_projections.0.bias': ['model.layers.0.self_attn.plt_gate.bias'],
        'model.gate_projections.1.weight': ['model.layers.1.self_attn.plt_gate.weight'],
        'model.layers.1.loop_gate_norm.weight': ['model.layers.1.self_attn.plt_gate.gate_norm.weight'],
      },
    ],
    [
      'Lumma',
      { ...LUMMA, ...SMALL, num_attention_heads: 4, num_key_value_heads: 2, num_hidden_layers: 1, embedding_rank: 6 },
      {
        'model.embed_tokens.weight': [19, 6],
        'model.embedding_proj.weight': [16, 6],
        'lm_head_proj.weight': [6, 16],
        'model.norm.weight': [16],
        ...Object.fromEntries(Object.entries(coderLayer(0)).filter(([name]) => !name.includes('v_proj'))),
        'model.layers.0.self_attn.q_norm.weight': [8],
      },
      { 'model.layers.0.self_attn.k_proj.weight': ['model.layers.0.self_attn.k_proj.weight'] },
    ],
    [
      'LoopUS',
      {
        ...LOOPUS,
        N: 3,
        base_config_dict: { ...LOOPUS.base_config_dict, ...CODER, num_hidden_layers: 4 },
        encoder_layer_indices: [0],
        reasoning_layer_indices: [1, 2],
        decoder_layer_indices: [3],
      },
      Object.fromEntries([
        ...[
          ['encoder', 0],
          ['reasoning', 0],
          ['reasoning', 1],
          ['decoder', 0],
        ].flatMap(([block, i]) =>
          [...Object.entries(coderLayer(i as number)), ...headNorms(i as number)].map(([name, shape]) => [
            name.replace('model', block as string),
            shape,
          ]),
        ),
        ...Object.entries(LDS),
      ]),
      {
        'model.embed_tokens.weight': ['encoder.embed_tokens.weight'],
        'model.layers.2.self_attn.q_norm.weight': ['reasoning.layers.1.self_attn.q_norm.weight'],
        'model.layers.3.mlp.up_proj.weight': ['decoder.layers.0.mlp.up_proj.weight'],
        'model.change.up.bias': ['reasoning.gate.delta_proj.bias'],
        'model.change.log_rate': ['reasoning.gate.A_log'],
      },
    ],
    [
      'LoopUS on Phi-4',
      {
        ...LOOPUS,
        N: 2,
        base_config_dict: { ...LOOPUS.base_config_dict, ...PHI_4, ...CODER, num_hidden_layers: 1 },
        encoder_layer_indices: [],
        reasoning_layer_indices: [0],
        decoder_layer_indices: [],
      },
      {
        ...LDS,
        'reasoning.layers.0.self_attn.qkv_proj.weight': [64, 16],
        'reasoning.layers.0.self_attn.o_proj.weight': [16, 32],
        'reasoning.layers.0.mlp.gate_up_proj.weight': [48, 16],
        'reasoning.layers.0.mlp.down_proj.weight': [16, 24],
        'reasoning.layers.0.input_layernorm.weight': [16],
        'reasoning.layers.0.post_attention_layernorm.weight': [16],
      },
      {
        'model.layers.0.self_attn.v_proj.weight': ['reasoning.layers.0.self_attn.qkv_proj.weight', 48],
        'model.layers.0.mlp.up_proj.weight': ['reasoning.layers.0.mlp.gate_up_proj.weight', 24],
      },
    ],
  ])('%s', (_, config, shapes, where) => {
    const weights = weightsOf(shapes);
    const opened = openCheckpoint(modelFolder(config, weights));
    const { geometry: g, tensors } = opened;
    for (const [name, [tensor, from = 0]] of Object.entries(where)) {
      const { shape, values } = weights[tensor]!;
      const row = shape[1] ?? 1;
      const count = (tensors.shapes.get(name) ?? []).reduce((a, b) => a * b);
      expect([...tensors.read(name)], name).toEqual(values.slice(from * row, from * row + count));
    }
    const logits = forward(loadModel(g, tensors, opened.normEpsilon), [1, 5, 18]);
    expect(logits.flatMap((row) => [...row]).every(Number.isFinite)).toBe(true);
    tensors.close();
  });

  it('HRM-Text scales its embedding, and the low state may be left out', () => {
    const weights = weightsOf(HRMS);
    const config = { ...KOHRM, ...HRM, hidden_size: 16 };
    const { num_layers_per_stack: _, ...both } = config;
    const folder = modelFolder(
      { ...config, embedding_scale: 50 },
      { ...weights, ...weightsOf({ 'model.z_L_init': [16] }) },
    );
    const { tensors, warnings } = openCheckpoint(folder);
    expect(tensors.read('model.embed_tokens.weight', 3, 1)[0]).toBe(
      50 * weights['model.embed_tokens.weight']!.values[3]!,
    );
    expect(warnings.join()).toContain('prompts are read causally');
    tensors.close();
    expect(() => openCheckpoint(modelFolder({ ...both, hidden_size: 16 }, weights))).toThrow('num_layers_per_stack');
    expect(() => openCheckpoint(modelFolder({ ...config, embedding_scale: undefined }, weights))).toThrow(
      'embedding_scale must be a number over 0',
    );
  });
});
