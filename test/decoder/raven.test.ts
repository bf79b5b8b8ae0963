/** Huginn's published layout, shrunken: tensors, arithmetic, refusals, and the commands on its folder. */
import '../gpu/narrow.js';
import { join } from 'node:path';
import { writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { openCheckpoint } from '../../src/decoder/checkpoint.js';
import { forward } from '../../src/decoder/reference/forward.js';
import { loadModel } from '../../src/decoder/reference/model.js';
import { inProcess } from '../cli/program.js';
import { describeGpu } from '../gpu/device.js';
import { randomOf, SEED } from '../gpu/random.js';
import { removeTemporary, temporaryFolder, type PlainTensor } from './files.js';
import { distance } from './models.js';
import { RAVEN, RETROFIT, ravenForward, ravenWeights, writeRaven, type RavenConfig } from './raven.js';

removeTemporary();

type Weights = Record<string, PlainTensor>;

function folderOf(
  config: Partial<Record<keyof RavenConfig, unknown>> & object = {},
  edit = (w: Weights): Weights => w,
  base: RavenConfig = RAVEN,
): string {
  const folder = temporaryFolder();
  writeRaven(folder, { ...base, ...config }, edit(ravenWeights(base, SEED)));
  return folder;
}

describe('Huginn as it is published', () => {
  it.each([true, false])(`decodes as its own code says: bf16, two shards, tied head %s (seed ${SEED})`, (tied) => {
    const config = { ...RAVEN, tie_embeddings: tied, tie_word_embeddings: tied };
    const weights = ravenWeights(config, SEED);
    const folder = temporaryFolder();
    writeRaven(folder, config, weights);
    const opened = openCheckpoint(folder);
    const tokens = [5, 0, 63, 17, 17, 2];
    const own = forward(loadModel(opened.geometry, opened.tensors, opened.normEpsilon), tokens);
    const expected = ravenForward(config, weights, tokens).map((row) => Float64Array.from(row));
    // The scaled embedding is rounded to f32.
    expect(distance(own, expected)).toBeLessThan(1e-6);
    expect(opened.warnings.join()).toContain('begins at zero');
    opened.tensors.close();
  });

  it('reads a part of a tensor from the place where it is packed', () => {
    const { tensors } = openCheckpoint(folderOf());
    const packed = ravenWeights(RAVEN, SEED)['transformer.core_block.1.attn.Wqkv.weight']!.values!;
    const h = RAVEN.n_embd;
    const from = h * h + 5;
    expect([...tensors.read('model.layers.2.self_attn.k_proj.weight', 5, 7)]).toEqual(packed.slice(from, from + 7));
    expect(() => tensors.read('model.layers.2.self_attn.k_proj.weight', h * h - 1, 2)).toThrow(RangeError);
    tensors.close();
  });

  it('is refused where it is another model', () => {
    const without = (name: string) => (w: Weights) =>
      Object.fromEntries(Object.entries(w).filter(([key]) => key !== name));
    const adapter = 'transformer.adapter.weight';
    expect(() => openCheckpoint(folderOf({}, without(adapter)))).toThrow(`"${adapter}" is missing`);
    expect(() => openCheckpoint(folderOf({ intermediate_size: 44 }))).toThrow(
      'mlp.fc.weight has shape [80,32], where [88,32] is needed',
    );
    const extra: PlainTensor = { dtype: 'F32', shape: [1], values: [1] };
    expect(() => openCheckpoint(folderOf({}, (w) => ({ ...w, 'transformer.abacus': extra })))).toThrow(
      'has "transformer.abacus", which the model has not',
    );
    expect(() => openCheckpoint(folderOf({ num_key_value_heads: 1 }))).toThrow('1 KV heads for 2 query heads');
    expect(() => openCheckpoint(folderOf({ norm_eps: 2 }))).toThrow('norm_eps must be a number between 0 and 1');
    expect(() => openCheckpoint(folderOf({ nonlin_name: 'GELU' }))).toThrow('nonlin_name must be silu');
    expect(() => openCheckpoint(folderOf({ test_time_noise: 0.1 } as object))).toThrow('test_time_noise');
  });
});

describe('Llamas that were retrofitted with its loops', () => {
  it(`decode as their own code says: grouped heads, two norms, an embedding as it is (seed ${SEED})`, () => {
    const weights = ravenWeights(RETROFIT, SEED);
    const opened = openCheckpoint(folderOf({}, (w) => w, RETROFIT));
    const tokens = [5, 0, 63, 17, 17, 2];
    const own = forward(loadModel(opened.geometry, opened.tensors, opened.normEpsilon), tokens);
    const expected = ravenForward(RETROFIT, weights, tokens).map((row) => Float64Array.from(row));
    expect(distance(own, expected)).toBeLessThan(1e-6);
    expect(opened.geometry).toMatchObject({ preludeLayers: 1, layers: 2, codaLayers: 1, loops: 3, kvHeads: 1 });
    opened.tensors.close();
  });

  it('are refused where they are made otherwise than the decoder makes them', () => {
    const opened = (config: object, base = RETROFIT) => openCheckpoint(folderOf(config, (w) => w, base));
    expect(() => opened({ init_values: { embed_scale: 5 } })).toThrow('init_values.embed_scale must be 1 for these');
    expect(() => opened({ init_values: undefined })).toThrow('init_values.embed_scale must be 1 for these');
    expect(() => opened({ init_values: { embed_scale: 1 } }, RAVEN)).toThrow('init_values.embed_scale must be 5.65');
    expect(() => opened({ initial_state_mode: 'embed-init' })).toThrow('initial_state_mode "embed-init"');
    expect(() => opened({ rope_scaling: { rope_type: 'llama3', factor: 32 } })).toThrow('rotary scaling of type');
    expect(() => opened({ padded_vocab_size: 100_352 })).toThrow('layers of another base than Llama');
    const gemma = { padded_vocab_size: 256_000, init_values: { embed_scale: Math.sqrt(32) } };
    expect(() => opened(gemma)).toThrow('layers of another base than Llama');
  });
});

describeGpu('Huginn on the device', () => {
  it(`run, fit and fidelity take its folder; greedy tokens are those of its arithmetic (seed ${SEED})`, async () => {
    const folder = folderOf();
    const expected = [9, 1, 44];
    const weights = ravenWeights(RAVEN, SEED);
    for (let n = 0; n < 4; n++) {
      const logits = ravenForward(RAVEN, weights, expected).at(-1) as number[];
      expected.push(logits.indexOf(Math.max(...logits)));
    }
    const model = ['--model', folder, '--weights', 'f32'];
    const decode = async (...more: string[]) => {
      const o = await inProcess(
        'run',
        ...model,
        '--tokens',
        '9,1,44',
        '--max-tokens',
        '4',
        '--format',
        'json',
        ...more,
      );
      expect(o.code, o.err).toBe(0);
      return JSON.parse(o.out) as { tokens: number[][]; warnings: string[] };
    };
    const exact = await decode('--cache-type', 'f32');
    expect(exact.tokens).toEqual([expected.slice(3)]);
    expect(exact.warnings.join()).toContain('begins at zero');

    const text = join(folder, 'tokens.txt');
    const random = randomOf(SEED);
    writeFileSync(text, Array.from({ length: 480 }, () => random.whole(0, 63)).join(' '));
    const codec = join(folder, 'codec.safetensors');
    const taught = [...model, '--tokens', text, '--window', '96'];
    const fitted = await inProcess('fit', ...taught, '--ratio', '2', '-o', codec, '--format', 'json');
    expect(fitted.code, fitted.err).toBe(0);
    expect(JSON.parse(fitted.out)).toMatchObject({ tokens: 288, codec: { kind: 'lla' } });
    const latent = ['--codec', 'lla', '--ratio', '2', '--codec-weights', codec];
    expect((await decode(...latent)).warnings.join()).not.toContain('fabricated');
    // Latents of this layout are judged by test/decoder/gpu*.test.ts.
    const judged = await inProcess('fidelity', ...taught, '--only', 'kv-quant', '--format', 'json');
    expect(judged.code, judged.err).toBe(0);
    const { rows } = JSON.parse(judged.out) as { rows: { kl: { estimate: number } }[] };
    expect(rows.length).toBeGreaterThan(0);
    for (const { kl } of rows) expect(kl.estimate).toBeGreaterThan(0);
  });
});
