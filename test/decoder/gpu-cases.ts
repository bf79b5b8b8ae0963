/** GPU decoders beside the float64 reference, on the same fabricated weights. */
import { expect } from 'vitest';
import type { Branch } from '../../src/codecs/codec.js';
import { openDecoder, type GpuDecoder, type GpuDecoderOptions } from '../../src/decoder/gpu/decoder.js';
import type { ReferenceDecoder } from '../../src/decoder/reference/decoder.js';
import type { Geometry } from '../../src/geometry/geometry.js';
import type { Device } from '../../src/gpu/index.js';
import type { Configuration } from '../../src/schedule/schedule.js';
import { ARITHMETIC } from '../../src/validate/correctness.js';
import { SEED } from '../gpu/random.js';
import { BRANCH, decoderOf, modelOf, promptOf, type Setup } from './models.js';

/** Relative error of logits that a decoder of f32 arithmetic may show against float64. */
export const TOLERANCE = 1e-3;
/**
 * Where rows are rounded to f16, one between two halves may fall to either: a single step may then be this far off,
 * half of all may not.
 */
export const ROUNDED_TOLERANCE = 20 * TOLERANCE;
export const F16 = { storage: 'f16', groupSize: 32 } as const;

export interface Case extends Omit<Setup, 'seed'> {
  readonly geometry: Geometry;
  readonly materialised?: boolean;
  readonly targetWorkgroups?: number;
  readonly bindingBytes?: number;
}

export function configurationOf(of: Case): Configuration {
  const {
    geometry,
    codec,
    materialised = false,
    eviction = null,
    choice = F16,
    branch = BRANCH,
    targetWorkgroups = 8,
    bindingBytes = Infinity,
  } = of;
  const path = of.path ?? (codec.rankK === undefined ? 'full' : 'reconstruct');
  return {
    geometry,
    codec,
    path,
    materialised,
    choice,
    branch: branch satisfies Branch,
    eviction,
    gpus: 1,
    targetWorkgroups,
    bindingBytes,
  };
}

export const open = (device: Device, of: Case, options: Partial<GpuDecoderOptions> = {}): Promise<GpuDecoder> =>
  openDecoder(device, configurationOf(of), {
    weights: { storage: 'f16', seed: SEED, matrices: of.matrices ?? 'random' },
    batch: 1,
    contextTokens: 100,
    ...options,
  });

export const referenceOf = (of: Case): ReferenceDecoder =>
  decoderOf(modelOf(of.geometry, SEED), { ...of, choice: of.choice ?? F16, seed: SEED });

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
 * What rounding of cached and rebuilt rows does to the reference's logits, of all steps of the prompts the most. Two
 * decoders that round alike, but for values between two neighbours, end no further apart than about this, however much
 * a random model amplifies.
 */
export function roundingOf({ choice, ...of }: Case, prompts: readonly (readonly number[])[]): number {
  const model = modelOf(of.geometry, SEED);
  return Math.max(
    ...prompts.map((prompt) => {
      const exact = decoderOf(model, {
        ...of,
        seed: SEED,
        materialised: false,
        ...(of.codec.bits === undefined ? {} : { codec: { kind: 'full' } }),
      });
      const rounded = referenceOf(choice ? { ...of, choice } : of);
      return Math.max(...prompt.map((token) => relative(rounded.step(token), exact.step(token))));
    }),
  );
}

/**
 * Fails where logits of a case with an f32 cache are further off than arithmetic explains, over the steps of such
 * prompts, one a sequence. What it explains is asked of the reference only when a decoder of a model that amplifies
 * little would fail.
 */
export function expectWithin(error: number, of: Case, prompts: readonly (readonly number[])[], message?: string): void {
  const coarse = of.materialised === true || of.codec.bits !== undefined;
  const usual = coarse ? ROUNDED_TOLERANCE : TOLERANCE;
  if (error < usual) return;
  expect(error, message).toBeLessThan(Math.max(usual, (coarse ? 2 : ARITHMETIC) * roundingOf(of, prompts)));
}

/**
 * Errors of every step of a random prompt, decoded on both sides, and whether the tokens were those of the largest
 * logits.
 */
export async function errorsOf(
  device: Device,
  of: Case,
  steps: number,
  options: Partial<GpuDecoderOptions> = {},
  seed = SEED + 1,
): Promise<number[]> {
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
