/**
 * Statistics of a paired comparison: pure functions of the logarithms of round ratios (now / before).
 *
 * The centre is the midmean (mean of the middle half): a round that was disturbed by another process counts for no more
 * than its sign, and the centre is more efficient than the median. Its uncertainty is a percentile bootstrap over
 * rounds.
 */
import { bootstrap as bootstrapOf, quantile, type Interval } from '../../numbers/statistics.js';

/** Mean of the middle half of the values; the median of fewer than four. */
export function midmean(values: ArrayLike<number>): number {
  const sorted = Float64Array.from(values).sort();
  const n = sorted.length;
  if (n === 0) throw new RangeError('midmean of no values');
  const cut = n < 4 ? (n - 1) >> 1 : n >> 2;
  let sum = 0;
  for (let i = cut; i < n - cut; i++) sum += sorted[i] as number;
  return sum / (n - 2 * cut);
}

/**
 * By how much the interval of a mean grows because successive values resemble each other: √((1 + ρ) / (1 − ρ)) with the
 * lag-1 correlation ρ of the values (ends drawn in to the 10th and 90th percentile, so that one outlier does not
 * decide), its bias of −(1 + 3ρ) / n taken off. Resampling treats rounds as independent, and noise that lasts for
 * several rounds makes them alike: without this the true ratio lay outside 19 % of 95 % intervals at ρ = 0.5, however
 * many rounds there were.
 */
export function correlationFactor(values: readonly number[]): number {
  const n = values.length;
  if (n < 8) return 1;
  const [low, high] = [quantile(values, 0.1), quantile(values, 0.9)];
  const drawnIn = values.map((v) => Math.min(high, Math.max(low, v)));
  const mean = drawnIn.reduce((sum, v) => sum + v, 0) / n;
  let [own, next] = [0, 0];
  drawnIn.forEach((v, i) => {
    own += (v - mean) ** 2;
    if (i > 0) next += (v - mean) * ((drawnIn[i - 1] as number) - mean);
  });
  if (own === 0) return 1;
  const raw = next / own;
  const rho = Math.min(MOST_CORRELATION, Math.max(0, raw + (1 + 3 * raw) / n));
  return Math.sqrt((1 + rho) / (1 - rho));
}
const MOST_CORRELATION = 0.9;

/**
 * Midmean of the values, in the order measured, with its percentile bootstrap interval, drawn from a seed: the same
 * values give the same interval. Widened where successive values are correlated.
 */
export function bootstrap(values: readonly number[], seed: number): Interval {
  const centre = (items: readonly number[]): number => midmean(items.map((i) => values[i] as number));
  const { estimate, low, high } = bootstrapOf(centre, values.length, seed);
  // Of few values the percentiles can miss the estimate itself.
  const reach = correlationFactor(values);
  return {
    estimate,
    low: estimate - reach * Math.max(0, estimate - low),
    high: estimate + reach * Math.max(0, high - estimate),
  };
}

/** exp of all three. */
export const exponential = (logs: Interval): Interval => ({
  estimate: Math.exp(logs.estimate),
  low: Math.exp(logs.low),
  high: Math.exp(logs.high),
});

/**
 * `slower`: the whole interval lies above 1 + threshold, which is the alarm. `faster`: it lies below its inverse.
 * `same`: it lies between the two. `unclear`: it crosses one of them. An unchanged kernel alarms only if the interval
 * errs by its own half-width and the threshold together.
 */
export type Verdict = 'slower' | 'faster' | 'same' | 'unclear';

/** @param ratio now / before; @param threshold as a fraction, such as 0.05 */
export function verdictOf(ratio: Interval, threshold: number): Verdict {
  const limit = 1 + threshold;
  if (ratio.low > limit) return 'slower';
  if (ratio.high < 1 / limit) return 'faster';
  return ratio.low >= 1 / limit && ratio.high <= limit ? 'same' : 'unclear';
}

/** True once more rounds would not change the answer: a clear verdict, and a half-width below half of the threshold. */
export function isSettled(ratio: Interval, threshold: number): boolean {
  return verdictOf(ratio, threshold) !== 'unclear' && Math.log(ratio.high / ratio.low) / 2 < Math.log1p(threshold) / 2;
}
