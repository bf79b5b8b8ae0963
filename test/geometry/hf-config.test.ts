import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { UserError } from '../../src/errors.js';
import { type Geometry, cacheSlots, parameterCount } from '../../src/geometry/geometry.js';
import { displayName } from '../../src/geometry/config.js';
import { geometryFromConfig } from '../../src/geometry/hf-config.js';
import { readModelFile } from '../../src/geometry/model-file.js';
import { BUNDLED_NAMES, findPreset, PRESET_NAMES } from '../../src/geometry/presets.js';
import { scratch, words } from '../cli/program.js';
import {
  HRM_TEXT,
  HUGINN,
  IQUEST_LOOP,
  KOHRM,
  LLAMA,
  LOOPCODER_V2,
  LOOPUS,
  LUMMA,
  MIMIR,
  MISTRAL,
  NANBEIGE,
  NANDI,
  OURO,
  PARCAE_140M,
  PHI_4,
  PUBLISHED,
  QWEN2,
  QWEN3,
  range,
  RECURRENT_LLAMA,
} from './configs.js';

const BASES: readonly object[] = [LLAMA, QWEN2, QWEN3, MISTRAL, ...PUBLISHED.map(([, config]) => config)];

/** A geometry without its texts. */
const facts = ({ name: _name, source: _source, modelType: _type, ...rest }: Geometry): Partial<Geometry> => rest;

function refusal(json: unknown): UserError {
  try {
    geometryFromConfig(json, 'm');
  } catch (error) {
    expect(error).toBeInstanceOf(UserError);
    const e = error as UserError;
    expect(e.exitCode).toBe(2);
    expect(`${e.message}${e.hint}`).not.toMatch(/[\n\r]/);
    expect(e.hint.length).toBeGreaterThan(5);
    return e;
  }
  return expect.unreachable('must be refused') as never;
}

describe('geometryFromConfig', () => {
  it.each(PUBLISHED)('reads %s exactly as its preset', (name, config) => {
    expect(facts(geometryFromConfig(config, name))).toEqual(facts(findPreset(name)));
  });

  it('has a config of every preset but those that share one', () => {
    const shared = ['ouro-1.4b-thinking', 'ouro-2.6b'];
    expect([...PUBLISHED.map(([name]) => name), ...shared].sort()).toEqual([...PRESET_NAMES].sort());
  });

  it("takes four loops where Ouro's file says none, and other loops of Nanbeige by its losses", () => {
    expect(geometryFromConfig({ ...OURO, total_ut_steps: undefined }, 'm').loops).toBe(4);
    expect(geometryFromConfig({ ...NANBEIGE, loop_loss_weights: [0.5, 0.5] }, 'm').loops).toBe(3);
    for (const [skips, normed] of [
      [undefined, true],
      [false, true],
      [true, false],
    ])
      expect(geometryFromConfig({ ...NANBEIGE, skip_loop_final_norm: skips }, 'm').normAfterEachLoop).toBe(normed);
    expect(refusal({ ...NANBEIGE, loop_loss_weights: 1 }).message).toMatch(/loop_loss_weights must be a list/);
  });

  it('reads the three spellings of HRM-Text as two stacks of 16 layers, and refuses a fourth', () => {
    for (const config of [HRM_TEXT, KOHRM, MIMIR, { ...HRM_TEXT, num_hidden_layers: 128, num_layers_per_stack: 16 }])
      expect(geometryFromConfig(config, 'm')).toMatchObject({
        layers: 64,
        loops: 2,
        stacks: [3, 1].map((runs) => ({ layers: 16, runs })),
      });
    // KV heads of the file are ignored by its class.
    expect(geometryFromConfig({ ...HRM_TEXT, num_key_value_heads: 4 }, 'm').kvHeads).toBe(12);
    for (const layers of [8, 24, 128])
      expect(refusal({ ...HRM_TEXT, num_hidden_layers: layers }).message).toMatch(/num_layers_per_stack is missing/);
  });

  it('reads windows of later loops, as many as there are loops', () => {
    const thinking = geometryFromConfig({ ...IQUEST_LOOP, loop_window_size: 8192, loop_num: 3 }, 'm');
    expect(thinking).toMatchObject({ loops: 3, laterLoopsWindow: 8192 });
    expect(geometryFromConfig({ ...IQUEST_LOOP, loop_num: 1 }, 'm').laterLoopsWindow).toBeUndefined();
    for (const window of [[64], [64, 1], 64, [0, 0], ['64', 0]])
      expect(refusal({ ...LOOPCODER_V2, plt_window_size: window }).message).toMatch(/plt_window_size must be/);
  });

  it("reads LoopUS's layers from their lists, and refuses lists that are no partition", () => {
    const half = { ...LOOPUS, N: 100, encoder_layer_indices: [], reasoning_layer_indices: range(0, 27) };
    expect(geometryFromConfig(half, 'm')).toMatchObject({ preludeLayers: 0, layers: 27, codaLayers: 1, loops: 100 });
    for (const wrong of [
      { decoder_layer_indices: [26] },
      { decoder_layer_indices: [] },
      { reasoning_layer_indices: [] },
    ])
      expect(refusal({ ...LOOPUS, ...wrong }).message).toMatch(/must name each of the 28 layers once/);
    expect(refusal({ ...LOOPUS, decoder_layer_indices: [28] }).message).toMatch(/decoder_layer_indices must name/);
    // Thrillcrazyer/Phi4_LoopUS
    const phi4 = { ...LOOPUS.base_config_dict, ...PHI_4, num_hidden_layers: 28 };
    const heads = { heads: 40, kvHeads: 10, headDim: 128, extraParametersPerLayer: 0 };
    expect(geometryFromConfig({ ...LOOPUS, base_config_dict: phi4 }, 'm')).toMatchObject(heads);
    expect(refusal({ ...LOOPUS, base_config_dict: MISTRAL }).message).toMatch(/base_config_dict must be of/);
  });

  it.each([
    ['Llama-3.1-8B', LLAMA, 8_030_261_248],
    ['Qwen2.5-7B', QWEN2, 7_615_616_512],
    ['Qwen3-8B', QWEN3, 8_190_735_360],
    ['Mistral-7B-v0.3', MISTRAL, 7_248_023_552],
  ] as const)('%s comes to its published parameter count', (name, config, count) => {
    const g = geometryFromConfig(config, name);
    expect(parameterCount(g)).toBe(count);
    expect(g.loops).toBe(1);
    expect(cacheSlots(g)).toBe(config.num_hidden_layers);
    expect(g.name).toBe(name);
  });

  it('takes the defaults of the class for what is absent', () => {
    const absent = words('num_key_value_heads tie_word_embeddings rope_theta torch_dtype architectures');
    const bare = Object.fromEntries(Object.entries(LLAMA).filter(([key]) => !absent.includes(key)));
    const g = geometryFromConfig(bare, 'bare');
    const usual = { tiedEmbeddings: false, weightType: 'bf16', rope: { theta: 10_000 } };
    expect(g).toMatchObject({ kvHeads: 32, headDim: 128, ...usual });
    expect(g.source).toContain('bf16 assumed');
    const newer = { ...bare, rope_parameters: { rope_theta: 5e5 }, dtype: 'float16' };
    expect(geometryFromConfig(newer, 'bare')).toMatchObject({ rope: { theta: 5e5 }, weightType: 'f16' });
  });

  it('counts the biases that the class has', () => {
    const extra = (c: object): number => geometryFromConfig(c, 'm').extraParametersPerLayer;
    expect(extra({ ...LLAMA, attention_bias: true })).toBe((32 + 16) * 128 + 4096);
    expect(extra({ ...LLAMA, mlp_bias: true })).toBe(2 * 14336 + 4096);
    expect(extra(QWEN2)).toBe((28 + 8) * 128);
    expect(extra(QWEN3)).toBe(256);
  });

  it.each([
    // Wrong fields.
    [{ ...LLAMA, hidden_size: undefined }, /hidden_size must be a whole number from 1 to 131072, missing/],
    [{ ...LLAMA, hidden_size: '4096' }, /hidden_size .* not "4096"/],
    [{ ...LLAMA, num_hidden_layers: -1 }, /num_hidden_layers .* not -1/],
    [{ ...LLAMA, num_hidden_layers: 1.5 }, /num_hidden_layers .* not 1.5/],
    [{ ...LLAMA, vocab_size: 1e10 }, /vocab_size/],
    [{ ...LLAMA, hidden_size: { toString: 1 } }, /hidden_size .* not an object/],
    [{ ...LLAMA, num_key_value_heads: 5 }, /multiple of num_key_value_heads \(5\)/],
    [{ ...LLAMA, head_dim: 63 }, /head_dim must be even/],
    [{ ...LLAMA, hidden_size: 4095 }, /multiple of the heads/],
    [{ ...LLAMA, rope_theta: 'x' }, /rope_theta must be a number/],
    [{ ...LLAMA, torch_dtype: 'int8' }, /torch_dtype must be bfloat16/],
    [{ ...LLAMA, tie_word_embeddings: 'yes' }, /tie_word_embeddings must be true or false/],
    [{ ...LLAMA, max_position_embeddings: 0 }, /max_position_embeddings/],
    [{ ...LLAMA, intermediate_size: 2 ** 20, num_hidden_layers: 1000 }, /10\^13 parameters/],
    [{ ...OURO, total_ut_steps: -1 }, /total_ut_steps .* not -1/],
    [{ ...HUGINN, mean_recurrence: 0 }, /mean_recurrence .* not 0/],
    [{ ...HUGINN, n_layers: 9 }, /n_layers must be the sum/],
    // Other layouts of families that it reads.
    [{ ...LUMMA, shared_kv: false }, /shared_kv must be true/],
    [{ ...LUMMA, kv_cache_mode: 'paged' }, /kv_cache_mode must be "shared" or "vanilla", not "paged"/],
    [{ ...LUMMA, layer_sharing: true, layer_sharing_repeats: 2 }, /layer_sharing is set/],
    [{ ...LOOPCODER_V2, plt_hidden_scale: -1 }, /plt_hidden_scale must be a number over 0, or null, not -1/],
    [{ ...PARCAE_140M, injection_type: 'add' }, /injection_type must be diagonal or linear/],
    [{ ...PARCAE_140M, recurrent_embedding_dimension: 512 }, /recurrent_embedding_dimension must be 768/],
    [{ ...HRM_TEXT, attention_bias: true }, /attention_bias must be false/],
    [{ ...NANDI, embedding_rank: 0 }, /embedding_rank must be a whole number/],
    [{ ...RECURRENT_LLAMA, block_class_name: 'TransformerPreNormBlock' }, /block_class_name must be "SandwichBlock"/],
    // Architectures that it does not model.
    [{ ...LLAMA, model_type: undefined }, /model_type must be one of .* missing/],
    [{ ...LLAMA, model_type: 'mamba' }, /model_type must be one of .* not "mamba"/],
    [{ ...LLAMA, model_type: '__proto__' }, /model_type/],
    [{ ...QWEN3, num_experts: 128 }, /num_experts .* mixture of experts/],
    [{ ...LLAMA, num_local_experts: 8 }, /mixture of experts/],
    [{ ...LLAMA, n_routed_experts: 64 }, /mixture of experts/],
    [{ ...LLAMA, kv_lora_rank: 512 }, /latent attention/],
    [{ ...QWEN2, use_sliding_window: true }, /use_sliding_window/],
    [{ ...MISTRAL, sliding_window: 4096 }, /sliding_window must be null, not 4096/],
    [{ ...MISTRAL, layer_types: ['full_attention', 'sliding_attention'] }, /layer_types/],
    [{ ...QWEN3, layer_types: ['linear_attention'] }, /layer_types/],
    [{ ...LLAMA, layer_types: 'full_attention' }, /layer_types/],
    [{ ...LLAMA, mamba_d_state: 16 }, /state-space/],
    [{ ...LLAMA, vision_config: { a: 1 } }, /multimodal/],
    [{ ...LLAMA, quantization_config: { bits: 4 } }, /quant_method undefined, whose bytes are not known/],
    [{ ...LLAMA, partial_rotary_factor: 0.5 }, /partial_rotary_factor/],
    [{ ...LLAMA, loop_num: 2, loop_window_size: 64 }, /"loop_num" says that the model loops/], // IQuest, relabelled
    [{ ...LLAMA, num_loops: 2 }, /"num_loops" says that the model loops/],
    [{ ...LLAMA, architectures: ['IQuestLoopCoderForCausalLM'] }, /architectures .* "IQuestLoopCoderForCausalLM"/],
    [{ ...LLAMA, architectures: ['LlamaForSequenceClassification'] }, /architectures/],
    [{ ...NANBEIGE, enable_double_loop_split: true }, /enable_double_loop_split/],
    [{ ...HUGINN, injection_type: 'diagonal' }, /injection_type/], // Parcae
  ])('refuses %#', (config, message) => {
    expect(refusal(config).message).toMatch(message);
  });

  /** What published models with loops say of them, and made-up names of the same kind. */
  const LOOP_FIELDS: readonly (readonly [key: string, value: unknown])[] = [
    ...words('H_cycles L_cycles num_layers_per_stack layer_sharing_repeats plt_num_loops num_stacks mu_rec'),
    ...words('recurrence_steps loop_times loop_count max_iter n_layers_in_recurrent_block num_mem_blocks'),
    ...words('pondering_steps num_latent_thoughts n_loops total_ut_steps mean_recurrence maxLoopDepth other_ut_steps'),
    ['layer_sharing', true],
    ['plt_window_size', [64, 0]],
    ['reasoning_layer_indices', [2, 3]],
    ['shared_kv', true],
    ['kv_cache_mode', 'shared'],
    ['recurrent_layers', [4, 5]],
    ['my_recurrence', 'deep'],
  ].map((field) => (typeof field === 'string' ? [field, 2] : field) as [string, unknown]);

  it.each(LOOP_FIELDS)('refuses %s by name in a model that is not known to loop', (key, value) => {
    for (const base of [LLAMA, QWEN3, QWEN2, MISTRAL, { ...LLAMA, model_type: 'stranger' }]) {
      const { message, hint } = refusal({ ...base, [key]: value });
      expect(message).toContain(`"${key}" says that the model loops or keeps another cache`);
      expect(hint).not.toMatch(/model_type|recurrent-llama/);
    }
  });

  it.each(LOOP_FIELDS.map(([key]) => key))('reads a model whose %s is switched off', (key) => {
    const once = ['num_mem_blocks', 'pondering_steps', 'num_latent_thoughts'].includes(key) ? 0 : 1;
    for (const off of [null, 0, once, false, [], {}, ''])
      expect(facts(geometryFromConfig({ ...LLAMA, [key]: off }, 'm'))).toEqual(facts(geometryFromConfig(LLAMA, 'm')));
  });

  it('refuses a second loop beside the one that a family reads, but not another name for it', () => {
    expect(refusal({ ...OURO, loop_times: 3 }).message).toContain('"loop_times"');
    expect(refusal({ ...NANBEIGE, H_cycles: 3 }).message).toContain('"H_cycles"');
    expect(geometryFromConfig({ ...NANBEIGE, loop_count: 2 }, 'm').loops).toBe(2);
  });

  it.each(['AutoModelForCausalLM', 'AutoConfig', 'AutoModel'])(
    'refuses code of its own (%s) beside a model_type without loops',
    (key) => {
      for (const base of [LLAMA, QWEN3])
        expect(refusal({ ...base, auto_map: { [key]: 'modeling_looped.Looped' } }).message).toMatch(
          /auto_map names code of its own .* which may loop/,
        );
      expect(refusal({ ...LLAMA, auto_map: 'x' }).message).toMatch(/auto_map must be an object/);
      const tokenizer = { auto_map: { AutoTokenizer: ['tokenization.T', null] } };
      expect(geometryFromConfig({ ...LLAMA, ...tokenizer }, 'm').loops).toBe(1);
      expect(geometryFromConfig({ ...OURO, auto_map: { [key]: 'modeling_ouro.Ouro' } }, 'm').loops).toBe(4);
    },
  );

  it.each([
    ['mobilellm', { layer_sharing: true }, /which run keeps which rows .* is not public/],
    ['zamba2', { num_mem_blocks: 2 }, /state of fixed size/],
    ['zamba', {}, /state of fixed size/],
    ['loopformer', { n_layer: 3 }, /repository's name alone/],
  ])('says why %s is not planned', (modelType, fields, why) => {
    const { message } = refusal({ ...LLAMA, architectures: undefined, model_type: modelType, ...fields });
    expect(message).toContain(`model_type "${modelType}" is not planned`);
    expect(message).toMatch(why);
  });

  it('never advises to relabel a model', () => {
    for (const modelType of [undefined, 'mamba', 'hrm'])
      expect(refusal({ ...LLAMA, model_type: modelType }).hint).not.toMatch(/model_type/);
  });

  it('must be told about the window of Mistral, whose class has one by default', () => {
    const { sliding_window: _window, ...bare } = MISTRAL;
    expect(refusal(bare).hint).toContain('"sliding_window": null');
  });

  it.each([null, undefined, 3, 'x', [], [LLAMA], true])('refuses %j, which is no object', (json) => {
    expect(refusal(json).message).toMatch(/must be a JSON object/);
  });

  it('throws nothing but UserError, and gives positive whole numbers', () => {
    const others = words('num_experts kv_lora_rank rope_parameters _name_or_path');
    const keys = [...new Set(BASES.flatMap((c) => Object.keys(c))), ...others];
    const bases = fc.constantFrom<object>({}, ...BASES);
    const value = fc.oneof(
      fc.jsonValue(),
      fc.integer({ min: -2, max: 5000 }),
      fc.double(),
      fc.constant(undefined),
      fc.constant({ toString: null }),
    );
    const changes = fc.dictionary(
      fc.oneof({ arbitrary: fc.constantFrom(...keys), weight: 5 }, { arbitrary: fc.string(), weight: 1 }),
      value,
      { maxKeys: 4, noNullPrototype: false },
    );
    const config = fc.oneof(
      fc.jsonValue(),
      fc.anything({ withNullPrototype: true }),
      fc.tuple(bases, changes).map(([a, b]) => ({ ...a, ...b })),
    );
    let read = 0;
    fc.assert(
      fc.property(config, fc.string(), (json, name) => {
        let g: Geometry;
        try {
          g = geometryFromConfig(json, name);
        } catch (error) {
          expect(error).toBeInstanceOf(UserError);
          return;
        }
        read++;
        const { layers, loops, heads, kvHeads, headDim, hidden, mlpHidden, vocab, maxPositions } = g;
        for (const n of [layers, loops, heads, kvHeads, headDim, hidden, mlpHidden, vocab, maxPositions])
          expect(Number.isSafeInteger(n) && n > 0).toBe(true);
        for (const n of [g.preludeLayers, g.codaLayers, g.extraParametersPerLayer])
          expect(Number.isSafeInteger(n) && n >= 0).toBe(true);
        expect(Number.isSafeInteger(parameterCount(g))).toBe(true);
        expect(g.rope.theta).toBeGreaterThan(0);
        expect(g.name).toMatch(/^[A-Za-z0-9._-]{1,64}$/);
      }),
      { numRuns: 3000 },
    );
    expect(read).toBeGreaterThan(100);
  });
});

describe('displayName', () => {
  it.each([
    ['Ouro-1.4B', 'Ouro-1.4B'],
    ['../../etc/passwd', 'etc-passwd'],
    ['\u001b[31mred\u001b[0m', '31mred-0m'],
    ['<script>alert(1)</script>', 'script-alert-1-script'],
    ['', 'model'],
    ['…', 'model'],
    ['x'.repeat(99), 'x'.repeat(64)],
  ])('%j becomes %s', (text, shown) => {
    expect(displayName(text)).toBe(shown);
  });
});

describe('readModelFile', () => {
  it('reads a bundled model by its name, from whatever folder', () => {
    for (const name of BUNDLED_NAMES) expect(readModelFile(name)).toEqual(readModelFile(join('models', name)));
  });

  const { path: folder, file: write, remove } = scratch();
  afterAll(remove);

  it('reads a file, and the folder that holds a config.json', () => {
    mkdirSync(join(folder, 'My-Llama'));
    const path = write('My-Llama/config.json', JSON.stringify(LLAMA));
    expect(readModelFile(path)).toMatchObject({ name: 'My-Llama', hidden: 4096 });
    expect(readModelFile(join(folder, 'My-Llama'))).toEqual(readModelFile(path));
  });

  it('is called as its file where that is no config.json', () => {
    expect(readModelFile(write('My-Llama/other.json', JSON.stringify(LLAMA))).name).toBe('other');
  });

  it('prefers the name that the config gives', () => {
    const named = (name: string): string =>
      readModelFile(write('a.json', `\ufeff${JSON.stringify({ ...LLAMA, _name_or_path: name })}`)).name;
    expect(named('meta-llama/Llama-3.1-8B')).toBe('Llama-3.1-8B');
    expect(named('\u001b]0;x\u0007')).toMatch(/^[A-Za-z0-9._-]{1,64}$/);
  });

  it.each(['-', '', '/no/such/config.json', '/dev/null', 'a\u0000b'])('refuses the path %j', (path) => {
    expect(() => readModelFile(path)).toThrow(UserError);
  });

  it('refuses a tah_config.json beside a plain config, which says that tokens iterate', () => {
    mkdirSync(join(folder, 'TaH'));
    const path = write('TaH/config.json', JSON.stringify(QWEN3));
    expect(readModelFile(path).loops).toBe(1);
    write('TaH/tah_config.json', JSON.stringify({ max_iter: 2, iter_attention_mode: 'duo' }));
    for (const given of [path, join(folder, 'TaH')])
      expect(() => readModelFile(given)).toThrow(/tah_config\.json beside .* runs some of its tokens again/);
  });

  it('refuses a folder without a config, a large file and what is not JSON', () => {
    mkdirSync(join(folder, 'empty'));
    expect(() => readModelFile(join(folder, 'empty'))).toThrow(/does not exist/);
    expect(() => readModelFile(write('large.json', ' '.repeat(2 ** 20 + 1)))).toThrow(/more than 1048576 bytes/);
    expect(() => readModelFile(write('bad.json', '{"a":'))).toThrow(/not valid JSON/);
    expect(() => readModelFile(write('list.json', '[]'))).toThrow(/must be a JSON object/);
  });
});
