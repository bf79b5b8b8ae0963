/** How likely a predicted time meets a limit. */
import { NORMAL_90 } from '../../cost/predictor.js';
import { halved } from '../../numbers/halving.js';
import type { Evidence, Interval } from '../../cost/evidence.js';

/** A time and what it rests on. */
export interface Timed {
  readonly seconds: Interval;
  readonly evidence: Evidence;
}

/** A datasheet's bracket says yes, no or nothing; everything else has a distribution. */
const isBracket = ({ evidence }: Timed): boolean => evidence === 'roofline';

/**
 * Probability that the time is at most `limit`. The interval is read as a split log-normal: its median is the estimate,
 * its ends are the 5th and the 95th percentile, and each side has its own spread.
 * @returns 0 to 1; null where a bracket over datasheet rates cannot tell
 */
export function chanceWithin(time: Timed, limit: number): number | null {
  const { estimate, low, high } = time.seconds;
  if (isBracket(time)) return high <= limit ? 1 : low > limit ? 0 : null;
  const spread = spreadOf(limit > estimate ? high / estimate : estimate / low);
  if (spread === 0) return limit >= estimate ? 1 : 0;
  return normalBelow(Math.log(limit / estimate) / spread);
}

/** The time that is met with this probability (above 0.5): the slow end for a bracket. */
export function timeAt(time: Timed, probability: number): number {
  const { estimate, high } = time.seconds;
  if (isBracket(time)) return high;
  return estimate * Math.exp(spreadOf(high / estimate) * normalQuantile(probability));
}

const spreadOf = (ratio: number): number => Math.log(ratio) / NORMAL_90;

/** Probability that a standard normal variable is at most `x`; Abramowitz and Stegun 7.1.26, error below 2e-7. */
export function normalBelow(x: number): number {
  const z = Math.abs(x) / Math.SQRT2;
  const t = 1 / (1 + 0.3275911 * z);
  const series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  const tail = (series * Math.exp(-z * z)) / 2;
  return x > 0 ? 1 - tail : tail;
}

/** The inverse of `normalBelow`, by bisection. */
export function normalQuantile(probability: number): number {
  const [low, high] = halved([-9, 9], 50, (x) => normalBelow(x) < probability);
  return (low + high) / 2;
}
