/** GPU decoders beside the float64 reference, on the same fabricated weights. */
import { expect } from 'vitest';
import type { Branch } from '../../src/codecs/codec.js';
import { openDecoder, type GpuDecoder, type GpuDecoderOptions } from '../../src/decoder/gpu/decoder.js';
import type { ReferenceDecoder } from '../../src/decoder/reference/decoder.js';
import type { Geometry } from '../../src/geometry/geometry.js';
import type { Device } from '../../src/gpu/index.js';
import type { Configuration } from '../../src/schedule/schedule.js';
import { SEED } from '../gpu/random.js';
import { BRANCH, decoderOf, modelOf, promptOf, type Setup } from './models.js';

/** Relative error of logits that a decoder of f32 arithmetic may show against float64. */
export const TOLERANCE = 1e-3;
/** Where rows are rounded to f16, one between two halves may fall to either: a single step may then be this far off, half of all may not. */
export const ROUNDED_TOLERANCE = 20 * TOLERANCE;
export const F16 = { storage: 'f16', groupSize: 32 } as const;

export interface Case extends Omit<Setup, 'seed'> {
  readonly geometry: Geometry;
  readonly materialised?: boolean;
  readonly targetWorkgroups?: number;
  readonly bindingBytes?: number;
}

export function configurationOf(of: Case): Configuration {
  const { geometry, codec, materialised = false, eviction = null, choice = F16, branch = BRANCH, targetWorkgroups = 8, bindingBytes = Infinity } = of;
  const path = of.path ?? (codec.rankK === undefined ? 'full' : 'reconstruct');
  return { geometry, codec, path, materialised, choice, branch: branch satisfies Branch, eviction, gpus: 1, targetWorkgroups, bindingBytes };
}

export const open = (device: Device, of: Case, options: Partial<GpuDecoderOptions> = {}): Promise<GpuDecoder> =>
  openDecoder(device, configurationOf(of), { weights: { storage: 'f16', seed: SEED, matrices: of.matrices ?? 'random' }, batch: 1, contextTokens: 100, ...options });

export const referenceOf = (of: Case): ReferenceDecoder => decoderOf(modelOf(of.geometry, SEED), { ...of, choice: of.choice ?? F16, seed: SEED });

/** ‖actual − expected‖ / ‖expected‖. */
export function relative(actual: ArrayLike<number>, expected: ArrayLike<number>): number {
  let [difference, squares] = [0, 0];
  for (let i = 0; i < expected.length; i++) {
    difference += ((actual[i] as number) - (expected[i] as number)) ** 2;
    squares += (expected[i] as number) ** 2;
  }
  return Number.isNaN(difference) ? Infinity : Math.sqrt(difference / squares);
}

/**
 * What rounding of cached and rebuilt rows does to the reference's logits, of all steps the most: 0 where nothing is rounded. Two decoders
 * that round alike, but for values between two neighbours, end no further apart than about this, however much a random model amplifies.
 */
export function roundingOf(of: Case, steps: number, seed = SEED + 1): number {
  const exact = referenceOf({ ...of, ...(of.codec.bits === undefined ? {} : { codec: { kind: 'full' } }), materialised: false, choice: { storage: 'f32', groupSize: 32 } });
  const rounded = referenceOf(of);
  return Math.max(...promptOf(of.geometry, steps, seed).map((token) => relative(rounded.step(token), exact.step(token))));
}

/** What logits of a case with an f32 cache may be off by over so many steps. */
export const toleranceOf = (of: Case, steps: number): number => (of.materialised || of.codec.bits !== undefined ? Math.max(ROUNDED_TOLERANCE, 2 * roundingOf(of, steps)) : TOLERANCE);

/** Errors of every step of a random prompt, decoded on both sides, and whether the tokens were those of the largest logits. */
export async function errorsOf(device: Device, of: Case, steps: number, options: Partial<GpuDecoderOptions> = {}, seed = SEED + 1): Promise<number[]> {
  const tokens = promptOf(of.geometry, steps, seed);
  const reference = referenceOf(of);
  const decoder = await open(device, of, { contextTokens: Math.max(100, steps), ...options });
  const errors: number[] = [];
  try {
    for (const token of tokens) {
      const expected = reference.step(token);
      const result = await decoder.step([token]);
      const actual = await decoder.logits();
      errors.push(relative(actual, expected));
      let best = 0;
      actual.forEach((x, i) => (best = x > (actual[best] as number) ? i : best));
      expect(result.tokens[0]).toBe(best);
    }
  } finally {
    decoder.close();
  }
  return errors;
}
