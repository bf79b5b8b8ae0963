/** Statistics of measurements. Quantiles interpolate linearly between neighbours (type 7 of Hyndman and Fan 1996). */
import { quantileSorted } from 'd3-array';
import { randomFrom } from './random.js';

/** The median, NaN of none. */
export const median = (values: Iterable<number>): number => quantile(values, 0.5);

/** The value below which this share of the others lie, NaN of none. What is not a number does not count. */
export function quantile(values: Iterable<number>, share: number): number {
  // A typed array sorts numbers many times faster than the library selects among them: fits ask a million times.
  const isArray = Array.isArray(values) || values instanceof Float64Array;
  const sorted = (isArray ? new Float64Array(values) : Float64Array.from(values)).sort();
  let count = sorted.length;
  while (Number.isNaN(sorted[count - 1])) count--;
  // Its types ask for an array; it reads any list.
  return quantileSorted(sorted.subarray(0, count) as unknown as number[], share) ?? NaN;
}

/** An estimate with the ends of its interval. */
export interface Interval {
  readonly estimate: number;
  readonly low: number;
  readonly high: number;
}

const RESAMPLES = 1000;
const TAIL = 0.025;

/** A mean with the ends of its central 95 % by the percentile bootstrap (Efron 1979). The same seed, the same ends. */
export function bootstrapMean(values: readonly number[], seed: number): Interval {
  const random = randomFrom(seed);
  const n = values.length;
  const meanOf = (at: () => number): number => {
    let sum = 0;
    for (let i = 0; i < n; i++) sum += values[at()] as number;
    return sum / n;
  };
  const means = Array.from({ length: RESAMPLES }, () => meanOf(() => Math.floor(random() * n)));
  let next = 0;
  return { estimate: meanOf(() => next++), low: quantile(means, TAIL), high: quantile(means, 1 - TAIL) };
}

/** Σ of one over Σ of the other, items resampled together: a ratio of sums with its central 95 %, as `bootstrapMean`. */
export function bootstrapRatio(over: readonly number[], under: readonly number[], seed: number): Interval {
  const random = randomFrom(seed);
  const n = over.length;
  const ratioOf = (at: () => number): number => {
    let [a, b] = [0, 0];
    for (let i = 0; i < n; i++) {
      const item = at();
      a += over[item] as number;
      b += under[item] as number;
    }
    return a / b;
  };
  const ratios = Array.from({ length: RESAMPLES }, () => ratioOf(() => Math.floor(random() * n)));
  let next = 0;
  return { estimate: ratioOf(() => next++), low: quantile(ratios, TAIL), high: quantile(ratios, 1 - TAIL) };
}
