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
import { modelFolder, removeTemporary, type PlainTensor } from './files.js';
import { distance } from './models.js';
import { RAVEN, RETROFIT, ravenForward, ravenWeights, type RavenConfig } from './raven.js';

removeTemporary();

type Weights = Record<string, PlainTensor>;

const TOKENS = [5, 0, 63, 17, 17, 2];

function folderOf(
  config: Partial<Record<keyof RavenConfig, unknown>> & object = {},
  edit = (w: Weights): Weights => w,
  base: RavenConfig = RAVEN,
): string {
  return modelFolder({ ...base, ...config }, edit(ravenWeights(base, SEED)), 2);
}

/** A model of two shards in bf16, whose logits are those of its own code. */
function openedAsItsCode(config: RavenConfig) {
  const opened = openCheckpoint(folderOf({}, undefined, config));
  const own = forward(loadModel(opened.geometry, opened.tensors, opened.normEpsilon), TOKENS);
  const expected = ravenForward(config, ravenWeights(config, SEED), TOKENS).map((row) => Float64Array.from(row));
  // The scaled embedding is rounded to f32.
  expect(distance(own, expected)).toBeLessThan(1e-6);
  opened.tensors.close();
  return opened;
}

describe('Huginn as it is published', () => {
  it.each([true, false])(`decodes as its own code says: bf16, two shards, tied head %s (seed ${SEED})`, (tied) => {
    const { warnings } = openedAsItsCode({ ...RAVEN, tie_embeddings: tied, tie_word_embeddings: tied });
    expect(warnings.join()).toContain('begins at zero');
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

  const ADAPTER = 'transformer.adapter.weight';
  const extra: PlainTensor = { dtype: 'F32', shape: [1], values: [1] };
  it.each<[object, string, ((w: Weights) => Weights)?]>([
    [{}, `"${ADAPTER}" is missing`, ({ [ADAPTER]: _, ...rest }) => rest],
    [{}, 'has "transformer.abacus", which the model has not', (w) => ({ ...w, 'transformer.abacus': extra })],
    [{ intermediate_size: 44 }, 'mlp.fc.weight has shape [80,32], where [88,32] is needed'],
    [{ num_key_value_heads: 1 }, '1 KV heads for 2 query heads'],
    [{ norm_eps: 2 }, 'norm_eps must be a number between 0 and 1'],
    [{ nonlin_name: 'GELU' }, 'nonlin_name must be silu'],
    [{ test_time_noise: 0.1 }, 'test_time_noise'],
  ])('is refused where it is another model: %j %s', (config, why, edit) => {
    expect(() => openCheckpoint(folderOf(config, edit))).toThrow(why);
  });
});

describe('Llamas that were retrofitted with its loops', () => {
  it(`decode as their own code says: grouped heads, two norms, an embedding as it is (seed ${SEED})`, () => {
    const { geometry } = openedAsItsCode(RETROFIT);
    expect(geometry).toMatchObject({ preludeLayers: 1, layers: 2, codaLayers: 1, loops: 3, kvHeads: 1 });
  });

  it.each<[object, string, RavenConfig?]>([
    [{ init_values: { embed_scale: 5 } }, 'init_values.embed_scale must be 1 for these'],
    [{ init_values: undefined }, 'init_values.embed_scale must be 1 for these'],
    [{ init_values: { embed_scale: 1 } }, 'init_values.embed_scale must be 5.65', RAVEN],
    [{ initial_state_mode: 'embed-init' }, 'initial_state_mode "embed-init"'],
    [{ rope_scaling: { rope_type: 'llama3', factor: 32 } }, 'rotary scaling of type'],
    [{ padded_vocab_size: 100_352 }, 'layers of another base than Llama'],
    [{ padded_vocab_size: 256_000, init_values: { embed_scale: Math.sqrt(32) } }, 'layers of another base than Llama'],
  ])('are refused where they are made otherwise than the decoder makes them: %j', (config, why, base = RETROFIT) => {
    expect(() => openCheckpoint(folderOf(config, undefined, base))).toThrow(why);
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
      const asked = ['--tokens', '9,1,44', '--max-tokens', '4', '--format', 'json'];
      const o = await inProcess('run', ...model, ...asked, ...more);
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
