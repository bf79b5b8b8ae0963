/** Where a number comes from, and how sure it is. */
import type { Interval } from '../numbers/statistics.js';

/**
 * From surest to least sure. `attainable`: what a tuned kernel of the same class reaches on that GPU, for operations
 * that nobody has measured; `roofline`: rates alone.
 */
export const EVIDENCE = ['measured', 'interpolated', 'extrapolated', 'attainable', 'roofline'] as const;
/** What a number rests on, the surest first. */
export type Evidence = (typeof EVIDENCE)[number];

/** True where a time does not come from this kernel's own measurements. */
export const isEstimate = (evidence: Evidence): boolean => evidence === 'attainable' || evidence === 'roofline';

/** The weaker of two. */
export const weaker = (a: Evidence, b: Evidence): Evidence => (EVIDENCE.indexOf(a) >= EVIDENCE.indexOf(b) ? a : b);

export type { Interval };

/** An amount over an interval: the slow end of a time is the low end of its rate. */
export const over = (amount: number, { estimate, low, high }: Interval): Interval => ({
  estimate: amount / estimate,
  low: amount / high,
  high: amount / low,
});

/** A price of one kernel call, in seconds. */
export interface Price extends Interval {
  readonly evidence: Evidence;
  /** Octaves by which the shape lies outside the measured range; 0 inside. */
  readonly octavesOutside: number;
  /** Whose kernels these are: `vLLM 0.24.0`, `lla-sim`, `attainable`, `roofline`. */
  readonly by: string;
  /**
   * What no kernel can fall below on this device, seconds: its bytes at the full bandwidth, its operations at the peak.
   */
  readonly floor?: Floor;
}

/** Seconds that the datasheet's rates alone take, whatever the kernel. */
export interface Floor {
  readonly memory: number;
  readonly compute: number;
}

/** How far whole servers were from their predictions, as natural logarithms: no interval is narrower. */
export interface ServerSpread {
  /** Whose published steps say so. */
  readonly of?: string;
  /** Of a step's time. */
  readonly step: number;
  /** Of the mean time to the first token under load. */
  readonly firstToken: number;
}
