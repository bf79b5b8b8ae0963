/**
 * Timing of dispatches. A sample is a submission of many of them over rotating operands, from which the cost of
 * submitting is taken off.
 */
import type { Clock, RunTime } from '../gpu/platform.js';
import type { BoundStep } from '../gpu/passes.js';

/** What the timing needs of a device; a test gives a fake one. */
export interface Runner {
  run(steps: readonly BoundStep[]): Promise<RunTime>;
}

export interface TimingRules {
  clock: Clock;
  /** Taken off the wall time of each submission. */
  submitSeconds: number;
  /** A submission is filled with calls until it takes this long, so that the clock's resolution does not matter. */
  batchSeconds: number;
  /** Most calls in one submission; 4096 unless given. */
  mostCalls?: number;
}

const MOST_CALLS = 4096;
/** A time may not come out as nothing, whatever the noise of the overhead that is taken off. */
const SHORTEST_SECONDS = 1e-9;

/** Seconds of a run by the clock that times the device. */
export const secondsOf = (
  { deviceSeconds, wallSeconds }: RunTime,
  { clock, submitSeconds }: Pick<TimingRules, 'clock' | 'submitSeconds'>,
): number => (clock !== 'wall' && deviceSeconds !== null ? deviceSeconds : wallSeconds - submitSeconds);

/**
 * Calls of which each takes `secondsEach`: whole rotations of the operand copies where one fits, else the next copies
 * each time.
 */
export function callsPerBatch(
  secondsEach: number,
  copies: number,
  batchSeconds: number,
  mostCalls = MOST_CALLS,
): number {
  const wanted = Math.min(mostCalls, Math.max(1, Math.ceil(batchSeconds / Math.max(secondsEach, SHORTEST_SECONDS))));
  return wanted < copies ? wanted : Math.ceil(wanted / copies) * copies;
}

/**
 * Finds how many calls fill a submission; then times one submission after another: seconds a call, and of all of them.
 * `copies`: the same call bound to different operands, in rotation, so that none finds its operands in a cache; the
 * caller has run it before (pipelines are compiled, results are checked).
 */
export async function batchTimer(
  runner: Runner,
  copies: readonly (readonly BoundStep[])[],
  rules: TimingRules,
): Promise<() => Promise<{ each: number; total: number }>> {
  let next = 0;
  const batch = (calls: number): BoundStep[] =>
    Array.from({ length: calls }, () => copies[next++ % copies.length] as readonly BoundStep[]).flat();
  const timeBatch = async (calls: number): Promise<number> => {
    const time = await runner.run(batch(calls));
    return Math.max(SHORTEST_SECONDS, secondsOf(time, rules) / calls);
  };
  let estimate = await timeBatch(1);
  // A cheap call's first estimate is mostly noise: one larger batch corrects it.
  const calls = callsPerBatch(estimate, copies.length, rules.batchSeconds / 4, rules.mostCalls);
  if (calls > 1) estimate = await timeBatch(calls);
  const perSample = callsPerBatch(estimate, copies.length, rules.batchSeconds, rules.mostCalls);
  return async () => {
    const each = await timeBatch(perSample);
    return { each, total: each * perSample };
  };
}
