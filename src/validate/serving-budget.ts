/** How many requests a validation of serving has time for. */
import type { Budget } from '../io/budget.js';
import type { ServingRun } from './serving-requests.js';

/** Of the time of a case, for its rehearsal at most; iterations of which one is of use. */
export const REHEARSAL_SHARE = 0.35;
export const LEAST_REHEARSED = 24;
/** Fewer requests than this are not compared. */
const LEAST_REQUESTS = 16;
/** A run is as long as this share of its time, by the rehearsal's speed. */
const RUN_SHARE = 0.7;
/** Kinds of pieces of the budget: a decoder with its pipelines, the least run, the simulations of a request. */
export const [OPENED, LEAST_RUN, SIMULATED] = ['serving decoder', 'least serving run', 'simulations of a request'];

/**
 * Seconds for a case that was rehearsed, where so many are left with it: the others have to be opened first. Cases that
 * would have no run of the fewest requests are not counted.
 */
export function caseSeconds(budget: Budget, cases: number): number {
  for (let n = cases; n > 1; n--) {
    const each = (budget.left - (n - 1) * budget.expected(OPENED)) / n;
    if (each >= budget.expected(LEAST_RUN)) return each;
  }
  return Math.max(0, budget.left);
}

/** Seconds of the run of the fewest requests. @param secondsPerRequest as in requestsIn */
export const leastRunSeconds = (secondsPerRequest: number): number => (LEAST_REQUESTS * secondsPerRequest) / RUN_SHARE;

/**
 * Requests of a run that end in so many seconds; 0 where those are too few.
 * @param secondsPerRequest of the rehearsal, in which all requests were there at once
 * @param simulatedSeconds of a request, afterwards
 */
export function requestsIn(
  seconds: number,
  { load, requests }: ServingRun,
  sequences: number,
  secondsPerRequest: number,
  simulatedSeconds: number,
): number {
  // At a lower load fewer requests share an iteration.
  const together = load === null ? 1 : Math.max(load, 1 / sequences);
  const count = Math.floor((RUN_SHARE * seconds) / (secondsPerRequest / together + simulatedSeconds));
  return count < Math.min(LEAST_REQUESTS, requests) ? 0 : Math.min(requests, count);
}
