/** How far the time of a measured shape lies from what was measured: as far as its visits do from each other. */
import { CONSTANTS } from './constants.js';
import type { Calibration } from '../schema/calibration.js';
import { correctedSeconds, driftExponentOf, typicalSeconds } from '../schema/drift.js';
import { conformalQuantile, FEWEST_FOR_QUANTILE } from './conformal.js';
import { NORMAL_90 } from './predictor.js';

/** A half has this many repetitions at least. */
const FEWEST_REPETITIONS = CONSTANTS.fewestRepetitions.value;
/** Never gone below: a kernel finds other caches inside a step than alone. */
const LEAST = NORMAL_90 * CONSTANTS.leastDeviation.value;

/**
 * 90 % half-width, log units, of a measured shape's time. Every point is visited at two times far apart, and
 * repetitions are kept in their order: the quantile, over all samples, of how far the typical times of both halves
 * differ. Infinite where too few samples have two halves.
 * @param stale kernels whose times are not used
 */
export function repeatsOf(
  { kernels }: { readonly kernels: readonly Pick<Calibration['kernels'][number], 'kernel' | 'samples'>[] },
  stale: ReadonlySet<string>,
): number {
  const differences: number[] = [];
  for (const { kernel, samples } of kernels) {
    if (stale.has(kernel)) continue;
    for (const variant of new Set(samples.map((s) => s.variant))) {
      const own = samples.filter((s) => s.variant === variant);
      const exponent = driftExponentOf(own);
      for (const sample of own) {
        const times = correctedSeconds(sample, exponent);
        const half = Math.floor(times.length / 2);
        if (half < FEWEST_REPETITIONS) continue;
        const typical = (part: readonly number[]): number => Math.log(typicalSeconds(part));
        differences.push(Math.abs(typical(times.slice(0, half)) - typical(times.slice(half))));
      }
    }
  }
  return differences.length < FEWEST_FOR_QUANTILE ? Infinity : Math.max(LEAST, conformalQuantile(differences));
}
