/** GPU decoders beside the float64 reference, on the same fabricated weights. */
import { expect } from 'vitest';
import { openDecoder, type GpuDecoder, type GpuDecoderOptions } from '../../src/decoder/gpu/decoder.js';
import { hasOwnStorage, isPacked } from '../../src/codecs/registry.js';
import type { Decisions } from '../../src/decoder/reference/cache.js';
import type { ReferenceDecoder } from '../../src/decoder/reference/decoder.js';
import type { Geometry } from '../../src/geometry/geometry.js';
import type { Device } from '../../src/gpu/index.js';
import type { Configuration } from '../../src/schedule/schedule.js';
import { mix } from '../../src/numbers/hash.js';
import { randomOf, SEED } from '../gpu/random.js';
import { BRANCH, decoderOf, modelOf, pathOf, type Change, type Setup, SINGLE, F16 } from './models.js';

/** Relative error of logits that a decoder of f32 arithmetic may show against float64. */
export const TOLERANCE = 1e-3;
/**
 * Where rows are rounded to f16, one between two halves may fall to either: a single step may then be this far off,
 * half of all may not.
 */
export const ROUNDED_TOLERANCE = 20 * TOLERANCE;

export interface Case extends Omit<Setup, 'seed'> {
  readonly geometry: Geometry;
  readonly materialised?: boolean;
  readonly targetWorkgroups?: number;
  readonly bindingBytes?: number;
}

export const configurationOf = (of: Case): Configuration => ({
  ...{ materialised: false, eviction: null, choice: F16, branch: BRANCH },
  ...{ gpus: 1, targetWorkgroups: 8, bindingBytes: Infinity },
  ...of,
  path: pathOf(of),
});

export const open = (device: Device, of: Case, options: Partial<GpuDecoderOptions> = {}): Promise<GpuDecoder> =>
  openDecoder(device, configurationOf(of), {
    weights: { storage: 'f16', seed: SEED, matrices: of.matrices ?? 'random' },
    batch: 1,
    contextTokens: 100,
    ...options,
  });

/** A decoder that is closed after its use. */
export async function opened<T>(
  device: Device,
  of: Case,
  options: Partial<GpuDecoderOptions>,
  use: (decoder: GpuDecoder) => Promise<T>,
): Promise<T> {
  const decoder = await open(device, of, options);
  try {
    return await use(decoder);
  } finally {
    decoder.close();
  }
}

/** @param decisions to be followed; its own unless given */
export const referenceOf = (of: Case, decisions?: Decisions): ReferenceDecoder =>
  decoderOf(modelOf(of.geometry, SEED), {
    ...of,
    choice: of.choice ?? F16,
    seed: SEED,
    ...(decisions ? { decisions } : {}),
  });

/** ‖actual − expected‖ / ‖expected‖. */
export function relative(actual: ArrayLike<number>, expected: ArrayLike<number>): number {
  let [difference, squares] = [0, 0];
  for (let i = 0; i < expected.length; i++) {
    difference += (actual[i]! - expected[i]!) ** 2;
    squares += expected[i]! ** 2;
  }
  return Number.isNaN(difference) ? Infinity : Math.sqrt(difference / squares);
}

/**
 * What rounding of cached and rebuilt rows does to the reference's logits, of all steps of the prompts the most. Two
 * decoders that round alike, but for values between two neighbours, end no further apart than about this, however much
 * a random model amplifies. Both keep the same tokens.
 */
function roundingOf({ choice, ...of }: Case, prompts: readonly (readonly number[])[]): number {
  const model = modelOf(of.geometry, SEED);
  return Math.max(
    ...prompts.map((prompt) => {
      const rounded = referenceOf(choice ? { ...of, choice } : of);
      const exact = decoderOf(model, {
        ...of,
        seed: SEED,
        materialised: false,
        decisions: { keeps: (_chosen, _unit, { site, kvHead }) => rounded.keptPositions(site, kvHead) },
        ...(!hasOwnStorage(of.codec) ? {} : { codec: { kind: 'full' } }),
      });
      return Math.max(...prompt.map((token) => relative(rounded.step(token), exact.step(token))));
    }),
  );
}

/** Draws of changed weights: those of a single one may happen to lie across what the model amplifies. */
const DRAWS = 8;

/**
 * What errors of f32 arithmetic may do to the reference's logits, of all steps of the prompts the most. A product of n
 * terms in f32 is the exact product of weights that are off by √n · 2^-24 (Higham and Mary 2019, SIAM J. Sci. Comput.
 * 41: the probable bound), so weights are changed by up to that much. All keep the same tokens.
 */
function arithmeticOf(of: Case, prompts: readonly (readonly number[])[]): number {
  const bound = Math.sqrt(of.geometry.mlpHidden) * 2 ** -24;
  const draws = Array.from({ length: DRAWS }, (_, draw) => {
    const random = randomOf(mix(SEED + draw));
    const share = (): number => (bound * random.whole(-1000, 1000)) / 1000;
    const change: Change = (weights) => ({
      shapes: weights.shapes,
      read: (...at) => weights.read(...at).map((x) => x * (1 + share())),
    });
    return { change, model: modelOf(of.geometry, SEED, change) };
  });
  return Math.max(
    ...prompts.map((prompt) => {
      const plain = referenceOf(of);
      const changed = draws.map(({ change, model }) =>
        decoderOf(model, {
          ...of,
          choice: of.choice ?? F16,
          seed: SEED,
          change,
          decisions: { keeps: (_chosen, _unit, { site, kvHead }) => plain.keptPositions(site, kvHead) },
        }),
      );
      return Math.max(
        ...prompt.flatMap((token) => {
          const expected = plain.step(token);
          return changed.map((decoder) => relative(decoder.step(token), expected));
        }),
      );
    }),
  );
}

/** Whether a prompt reads rows in 16 bits, or a step rebuilds such. */
const isCoarse = ({ materialised = false, codec, choice = F16 }: Case): boolean =>
  materialised || hasOwnStorage(codec) || choice.storage !== 'f32';
const usualOf = (of: Case): number => (isCoarse(of) ? ROUNDED_TOLERANCE : TOLERANCE);

/** A case whose cache has 32 bits: where a reference follows what is stored, arithmetic is all that differs. */
export const inSingles = (of: Case): Case => ({
  ...of,
  choice: SINGLE,
  ...(hasOwnStorage(of.codec) ? { codec: { kind: 'full' } } : {}),
});

/**
 * The relative error that arithmetic explains, over the steps of such prompts, one a sequence.
 * @param usual no less than this
 */
export function limitOf(of: Case, prompts: readonly (readonly number[])[], usual = usualOf(of)): number {
  const known = explained.get(prompts) ?? new WeakMap<Case, number>();
  explained.set(prompts, known);
  const error = known.get(of) ?? explainedOf(of, prompts);
  known.set(of, error);
  return Math.max(usual, 2 * error);
}

/** It takes seconds, and a test asks for the same again at every step. */
const explained = new WeakMap<readonly (readonly number[])[], WeakMap<Case, number>>();

function explainedOf(of: Case, prompts: readonly (readonly number[])[]): number {
  // Of two keys with nearly the same score either may be chosen.
  if (!isCoarse(of) || isPacked(of.codec)) return arithmeticOf(of, prompts);
  // Codes are followed; rows in 16 bits are not.
  return roundingOf(!hasOwnStorage(of.codec) ? of : { ...inSingles(of), choice: F16 }, prompts);
}

/**
 * Fails where logits are further off than arithmetic explains. What it explains is asked of the reference only when a
 * decoder of a model that amplifies little would fail.
 */
export function expectWithin(error: number, of: Case, prompts: readonly (readonly number[])[], message?: string): void {
  if (error < usualOf(of)) return;
  expect(error, message).toBeLessThan(limitOf(of, prompts));
}
