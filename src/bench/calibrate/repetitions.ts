/** How often a point is timed in one visit. */

/** At least so many repetitions, then more until the visit's time is spent or there are the second. */
export const LEAST_REPETITIONS = 3;
export const MOST_REPETITIONS = 9;
/** So many that lie within this factor end a visit: more of them would tell nothing new. */
const QUIET = { repetitions: 4, factor: 1.04 };
/** Assumed relative spread of a point that has too few repetitions to show one. */
const UNKNOWN_SPREAD = 0.25;

/** Drift beyond this: a repetition is made again. Processor time follows the probe further (docs/experiments.md). */
export const DRIFT_RETRIED = { usual: 0.2, processor: 0.5 };

/** Whether a drift, 1 for none, is off by more than this fraction. */
export const isBeyond = (drift: number, fraction: number): boolean => Math.abs(Math.log(drift)) > Math.log1p(fraction);

/** Whether the repetitions of a visit agree. */
export const isQuiet = (times: readonly number[]): boolean =>
  times.length >= QUIET.repetitions && Math.max(...times) <= QUIET.factor * Math.min(...times);

/** Relative spread of repetitions: half of them lie within. */
export function spreadOf(times: readonly number[]): number {
  if (times.length < LEAST_REPETITIONS) return UNKNOWN_SPREAD;
  const sorted = [...times].sort((x, y) => x - y);
  const at = (share: number): number => sorted[Math.floor(share * (sorted.length - 1))] as number;
  return (at(0.75) - at(0.25)) / at(0.5);
}
