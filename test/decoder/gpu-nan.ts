/** Weights that hold a NaN, which has to reach the logits: a kernel may not lose it in a maximum. */
import { expect } from 'vitest';
import type { TensorSource } from '../../src/decoder/weights.js';
import type { Device } from '../../src/gpu/index.js';
import { SEED } from '../gpu/random.js';
import { everyNth } from '../gpu/sample.js';
import { open, type Case } from './gpu-cases.js';
import { promptOf, weightsOf } from './models.js';

/** A source whose tensor holds a NaN. */
const broken = (source: TensorSource, tensor: string): TensorSource => ({
  shapes: source.shapes,
  read(name, from, count) {
    const values = source.read(name, from, count);
    if (name === tensor) values[0] = NaN;
    return values;
  },
});

const WAYS = [
  ['by-token', 3],
  ['by-token', 1],
  ['accumulated', 3],
  ['chunked', 3],
] as const;

/** One way of taking tokens in for the weights of queries and one for those of keys: others by another seed. */
export async function expectNaN(device: Device, of: Case, salt: number): Promise<void> {
  for (const [j, part] of ['q_proj', 'k_proj'].entries()) {
    const model = broken(weightsOf(of.geometry, SEED), `model.layers.1.self_attn.${part}.weight`);
    for (const [method, tokens] of everyNth(WAYS, WAYS.length, 2 * salt + j)) {
      const decoder = await open(device, of, { weights: { storage: 'f32', seed: SEED, model }, prefillChunkTokens: 2 });
      await expect(
        decoder.prefill([promptOf(of.geometry, tokens, SEED)], method),
        `${of.path ?? 'full'} ${part} ${method} ${tokens}`,
      ).rejects.toThrow('hold NaN');
    }
  }
}
