/** Statistics of measurements. Quantiles interpolate linearly between neighbours (type 7 of Hyndman and Fan 1996). */
import { quantileSorted } from 'd3-array';
import { randomFrom } from './random.js';

export const sum = (values: readonly number[]): number => values.reduce((total, x) => total + x, 0);

/** NaN of none. */
export const mean = (values: readonly number[]): number => sum(values) / values.length;

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

/** An amount with the ends of its interval; low ≤ estimate ≤ high. */
export interface Interval {
  readonly estimate: number;
  readonly low: number;
  readonly high: number;
}

const RESAMPLES = 1000;
const TAIL = 0.025;

/**
 * A statistic of n items with the ends of its central 95 % by the percentile bootstrap (Efron 1979). The same seed, the
 * same draws: of statistics of the same items too, which are resampled together where one statistic holds them all.
 * @param statistic of the items with these numbers, 0 to n − 1, each as often as it is named
 */
export function bootstrap(statistic: (items: readonly number[]) => number, n: number, seed: number): Interval {
  const random = randomFrom(seed);
  const drawn = Array.from({ length: RESAMPLES }, () =>
    statistic(Array.from({ length: n }, () => Math.floor(random() * n))),
  );
  const estimate = statistic(Array.from({ length: n }, (_, i) => i));
  return { estimate, low: quantile(drawn, TAIL), high: quantile(drawn, 1 - TAIL) };
}

/** A mean, as `bootstrap`. */
export const bootstrapMean = (values: readonly number[], seed: number): Interval =>
  bootstrap((items) => items.reduce((sum, i) => sum + (values[i] as number), 0) / items.length, values.length, seed);
