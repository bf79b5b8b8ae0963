/** Model folders: shards, names and shapes against config.json. */
import { symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { checkTensors, openCheckpoint, openSharded } from '../../src/decoder/checkpoint.js';
import { forward } from '../../src/decoder/reference/forward.js';
import { loadModel } from '../../src/decoder/reference/model.js';
import { elementsOf, modelTensors, type TensorSpec } from '../../src/decoder/tensors.js';
import { UserError } from '../../src/errors.js';
import { geometryFromConfig } from '../../src/geometry/hf-config.js';
import { SEED } from '../gpu/random.js';
import { modelFolder, type PlainTensor, removeTemporary, safetensors, temporaryFolder } from './files.js';
import { distance, weightsOf } from './models.js';

removeTemporary();

const OURO = {
  model_type: 'ouro',
  architectures: ['OuroForCausalLM'],
  hidden_size: 16,
  intermediate_size: 24,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 4,
  total_ut_steps: 3,
  vocab_size: 19,
  max_position_embeddings: 64,
  rope_theta: 1e6,
  rms_norm_eps: 1e-5,
  tie_word_embeddings: false,
  torch_dtype: 'bfloat16',
};
const LLAMA = {
  ...OURO,
  model_type: 'llama',
  architectures: ['LlamaForCausalLM'],
  total_ut_steps: undefined,
  tie_word_embeddings: true,
};

/** Every field that the publishers' config.json has for the shape, with small sizes. */
const PUBLISHED = {
  ouro: {
    ...OURO,
    num_key_value_heads: 4,
    early_exit_threshold: 1.0,
    hidden_act: 'silu',
    initializer_range: 0.02,
    layer_types: ['full_attention', 'full_attention'],
    max_window_layers: 2,
    rms_norm_eps: 1e-6,
    rope_scaling: null,
    sliding_window: null,
    use_cache: true,
    use_sliding_window: false,
  },
  nanbeige: {
    architectures: ['NanbeigeForCausalLM'],
    model_type: 'nanbeige',
    hidden_size: 16,
    intermediate_size: 24,
    num_hidden_layers: 2,
    num_attention_heads: 6,
    num_key_value_heads: 2,
    head_dim: 4,
    kv_channels: 4,
    vocab_size: 19,
    max_position_embeddings: 64,
    rope_theta: 70000000,
    attention_bias: false,
    num_loops: 2,
    loop_loss_weights: [],
    skip_loop_final_norm: false,
    tie_word_embeddings: false,
    torch_dtype: 'bfloat16',
  },
} as const;

/** A folder with fabricated weights of a config, in as many shards as wanted. */
function folderOf(
  config: object,
  { shards = 1, dtype = 'F16' as PlainTensor['dtype'], edit = (specs: TensorSpec[]): TensorSpec[] => specs } = {},
): string {
  const g = geometryFromConfig(JSON.parse(JSON.stringify(config)), 'small');
  const specs = edit(modelTensors(g));
  const source = weightsOf(g, SEED, specs);
  const tensors = specs.map(({ name, shape }): [string, PlainTensor] => [
    name,
    { dtype, shape: [...shape], values: [...source.read(name)] },
  ]);
  return modelFolder(config, Object.fromEntries(tensors), shards);
}

const indexOf = (weightMap: unknown): string => {
  const path = join(temporaryFolder(), 'model.safetensors.index.json');
  writeFileSync(path, typeof weightMap === 'string' ? weightMap : JSON.stringify({ weight_map: weightMap }));
  return path;
};

describe('checkpoint', () => {
  it.each([
    ['Ouro, one file', OURO, 1],
    ['Ouro, three shards', OURO, 3],
    ['Llama, tied, one file', LLAMA, 1],
  ] as const)('opens %s and decodes from it', (_, config, shards) => {
    const opened = openCheckpoint(folderOf(config, { shards }));
    const g = opened.geometry;
    expect(opened.normEpsilon).toBe(1e-5);
    const tokens = [1, 5, 18, 0];
    const [found, made] = [opened.tensors, weightsOf(g, SEED)].map((of) => forward(loadModel(g, of, 1e-5), tokens));
    expect(distance(found!, made!)).toBe(0);
    opened.tensors.close();
  });

  it('reads bf16 as it is stored', () => {
    const [f32, bf16] = (['F32', 'BF16'] as const).map((dtype) => openCheckpoint(folderOf(OURO, { dtype })).tensors);
    for (const name of f32?.shapes.keys() ?? [])
      bf16
        ?.read(name)
        .forEach((x, i) => expect(Math.abs(x - f32!.read(name, i, 1)[0]!)).toBeLessThanOrEqual(Math.abs(x) / 64));
  });

  it.each(Object.entries(PUBLISHED))('opens a shrunken %s as it is published: bf16, two shards', (_, config) => {
    const opened = openCheckpoint(folderOf(config, { shards: 2, dtype: 'BF16' }));
    const g = opened.geometry;
    expect([...opened.tensors.shapes.keys()]).toContain('model.layers.1.self_attn.k_proj.weight');
    expect(opened.tensors.shapes.has('model.early_exit_gate.weight')).toBe(config.model_type === 'ouro');
    const exact = weightsOf(g, SEED);
    // bf16 by cutting f32 off, as the file was written.
    const cut: typeof exact = {
      shapes: exact.shapes,
      read: (name) => {
        const words = new Uint32Array(exact.read(name).buffer).map((word) => word & 0xffff0000);
        return new Float32Array(words.buffer);
      },
    };
    const tokens = [3, 0, 18, 7];
    expect(distance(forward(loadModel(g, opened.tensors), tokens), forward(loadModel(g, cut), tokens))).toBe(0);
    opened.tensors.close();
  });

  const UNKNOWN: TensorSpec = { name: 'model.layers.0.self_attn.q_norm.weight', shape: [4], role: 'norm' };
  it.each<[(specs: TensorSpec) => TensorSpec[], string]>([
    [
      (s) => (s.name === 'model.layers.1.mlp.up_proj.weight' ? [] : [s]),
      '"model.layers.1.mlp.up_proj.weight" is missing',
    ],
    [(s) => (s.name.includes('layers.1') ? [] : [s]), 'and 8 more are missing'],
    [(s) => (s.name === 'lm_head.weight' ? [s, UNKNOWN] : [s]), `has "${UNKNOWN.name}", which the model has not`],
    [
      (s) => (s.name.includes('0.mlp.down') ? [{ ...s, shape: [...s.shape].reverse() }] : [s]),
      'model.layers.0.mlp.down_proj.weight has shape [24,16], where [16,24] is needed',
    ],
    [
      (s) => (s.name === 'lm_head.weight' ? [{ ...s, shape: [1, elementsOf(s.shape)] }] : [s]),
      'lm_head.weight has shape [1,304]',
    ],
  ])('names what is missing, of another shape, or unknown: %#', (edit, why) => {
    expect(() => openCheckpoint(folderOf(OURO, { edit: (specs) => specs.flatMap(edit) }))).toThrow(why);
  });

  it('leaves out old rotary buffers and a tied head', () => {
    const extras: TensorSpec[] = [
      { name: 'model.layers.0.self_attn.rotary_emb.inv_freq', shape: [2], role: 'norm' },
      { name: 'lm_head.weight', shape: [19, 16], role: 'matrix' },
    ];
    expect(openCheckpoint(folderOf(LLAMA, { edit: (specs) => [...specs, ...extras] })).geometry.tiedEmbeddings).toBe(
      true,
    );
    const g = geometryFromConfig(OURO, 'm');
    const shapes = new Map(modelTensors(g).map((s) => [s.name, s.shape]));
    expect(() => checkTensors(g, shapes, 'here')).not.toThrow();
    expect(() => checkTensors(g, new Map([...shapes, ['x', [1]]]), 'here')).toThrow(
      'here has "x", which the model has not',
    );
  });

  it('refuses what it would decode wrongly', () => {
    expect(() => openCheckpoint(folderOf({ ...LLAMA, rope_scaling: { rope_type: 'llama3', factor: 8 } }))).toThrow(
      'rotary scaling of type "llama3" is not decoded',
    );
    expect(() => openCheckpoint(folderOf({ ...OURO, rms_norm_eps: 0 }))).toThrow('rms_norm_eps');
    expect(() => openCheckpoint(folderOf({ ...OURO, hidden_act: 'gelu' }))).toThrow('hidden_act must be silu');
    expect(() => openCheckpoint(temporaryFolder())).toThrow('does not exist');
    expect(openCheckpoint(folderOf({ ...OURO, rope_scaling: null, hidden_act: 'silu' })).geometry.loops).toBe(3);
  });
});

describe('index of shards', () => {
  it.each([
    '../x.safetensors',
    '/etc/x.safetensors',
    'a/b.safetensors',
    'a\\b.safetensors',
    '..',
    '.hidden.safetensors',
    'x.bin',
    '',
    'x.safetensors\n',
    7,
    null,
  ])('refuses the file name %j', (name) => {
    expect(() => openSharded(indexOf({ t: name }))).toThrow(/which is not a plain name/);
  });

  it('refuses maps that are none, or disagree with the files', () => {
    for (const [map, why] of [
      [[], 'no weight_map'],
      [{}, 'names no tensor'],
      ['{"weight_map":{"a":"x.safetensors","a":"y.safetensors"}}', 'names "a" twice'],
      ['{"weight_map"', 'not valid JSON'],
      ['[]', 'must be a JSON object'],
      [{ a: 'absent.safetensors' }, 'does not exist'],
      [Object.fromEntries(Array.from({ length: 600 }, (_, i) => [`t${i}`, `s${i}.safetensors`])), 'names 600 files'],
    ] as const) {
      expect(() => openSharded(indexOf(map)), JSON.stringify(map).slice(0, 80)).toThrow(why);
    }
    const one: PlainTensor = { dtype: 'F32', shape: [1], values: [1] };
    const shard = (path: string, name: string, tensors: Record<string, PlainTensor>): void =>
      writeFileSync(join(path, '..', name), safetensors(tensors));
    const lacking = indexOf({ a: 'x.safetensors', b: 'x.safetensors' });
    shard(lacking, 'x.safetensors', { a: one });
    expect(() => openSharded(lacking)).toThrow('lacks "b"');
    const more = indexOf({ a: 'x.safetensors' });
    shard(more, 'x.safetensors', { a: one, b: one });
    expect(() => openSharded(more)).toThrow('holds "b", which weights index');
    const twice = indexOf({ a: 'x.safetensors', b: 'y.safetensors' });
    shard(twice, 'x.safetensors', { a: one });
    shard(twice, 'y.safetensors', { a: one, b: one });
    expect(() => openSharded(twice)).toThrow('places in "x.safetensors"');
    const endless = indexOf({ a: 'x.safetensors' });
    symlinkSync('/dev/zero', join(endless, '..', 'x.safetensors'));
    expect(() => openSharded(endless)).toThrow('not a regular file');
  });

  it('of any content is read or refused, never anything else', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.json(),
          fc.jsonValue().map((v) => JSON.stringify({ weight_map: v })),
        ),
        (text) => {
          try {
            openSharded(indexOf(text)).close();
          } catch (error) {
            if (!(error instanceof UserError)) throw error;
          }
        },
      ),
      { seed: SEED, numRuns: 200 },
    );
  });
});
