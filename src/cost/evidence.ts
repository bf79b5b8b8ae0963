/** Where a number comes from, and how sure it is. */

/** From surest to least sure. */
export const EVIDENCE = ['measured', 'interpolated', 'extrapolated', 'roofline'] as const;
export type Evidence = (typeof EVIDENCE)[number];

/** The weaker of two. */
export const weaker = (a: Evidence, b: Evidence): Evidence => (EVIDENCE.indexOf(a) >= EVIDENCE.indexOf(b) ? a : b);

/** An amount with the ends of its interval; low ≤ estimate ≤ high. */
export interface Interval {
  readonly estimate: number;
  readonly low: number;
  readonly high: number;
}

/** A price of one kernel call, in seconds. */
export interface Price extends Interval {
  readonly evidence: Evidence;
  /** Octaves by which the shape lies outside the measured range; 0 inside. */
  readonly octavesOutside: number;
}
