/**
 * Half-widths from cases that were left out. What is left out is what the user's case leaves out: a point between
 * others, a head count, a line of a table, octaves, a stack, a GPU. Scores are |log error|, what a half-width lacked,
 * or errors over their predicted deviation; the half-width is their 90 % quantile.
 *
 * This is split conformal prediction around a fit to all points, without its guarantee: `lla-sim validate` and
 * scripts/frozen-predictions.mjs measure what it covers.
 */
import { CONSTANTS } from './constants.js';

/** Share of times that an interval covers. */
export const LEVEL = CONSTANTS.level.value;
/** Fewer scores than this have no 90 % quantile. */
export const FEWEST_FOR_QUANTILE = CONSTANTS.fewestForQuantile.value;
/** Where the data allow no test of extrapolation the time may be off by another factor of two each octave. */
export const KAPPA_UNTESTED = CONSTANTS.perOctaveUntested.value;
const KAPPA_FLOOR = CONSTANTS.perOctaveLeast.value;

/**
 * Our own: scores are weighed by their groups, and it is an order statistic. The ⌈level · (n + 1)⌉-th smallest of n
 * scores, or the largest when there are not that many; 0 of none.
 * @param groups scores that were left out together err together: every group counts alike, and each score as a part of
 *   its group (pooled distributions of Dunn, Wasserman & Ramdas 2022, "Distribution-free prediction sets for two-layer
 *   hierarchical models")
 */
export function conformalQuantile(groups: readonly (number | readonly number[])[], level = LEVEL): number {
  const scores = groups.flatMap((group) =>
    typeof group === 'number'
      ? [{ score: group, weight: 1 }]
      : group.map((score) => ({ score, weight: 1 / group.length })),
  );
  scores.sort((a, b) => a.score - b.score);
  const filled = groups.filter((group) => typeof group === 'number' || group.length > 0).length;
  const enough = level * filled * (1 + 1 / scores.length) - 1e-9;
  let below = 0;
  for (const { score, weight } of scores) if ((below += weight) >= enough) return score;
  return scores.at(-1)?.score ?? 0;
}

/** What a half-width lacked, log units an octave. Just outside an octave is one: a sliver would multiply the error. */
export const lackPerOctave = (error: number, halfWidth: number, octaves: number): number =>
  Math.max(0, Math.abs(error) - halfWidth) / Math.max(1, octaves);

/** What half-widths gain an octave outside of what was measured, log units. @param lacks of hidden octaves */
export const kappaOf = (lacks: readonly (number | readonly number[])[], fewest = 1): number =>
  lacks.length < fewest ? KAPPA_UNTESTED : Math.max(KAPPA_FLOOR, conformalQuantile(lacks));
