/**
 * Timing of dispatches. A sample is a submission of many of them over rotating operands, from which the cost of
 * submitting is taken off.
 */
import type { Clock, RunTime } from '../gpu/platform.js';
import type { BoundStep } from '../gpu/passes.js';
import type { Measure } from './rounds.js';

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

/** A call bound to several sets of operands, used round robin, so that none is found in a cache. */
export type Copies = readonly (readonly BoundStep[])[];

/** Times one submission: seconds a call, how many there were, and seconds of all. */
export type BatchTimer = () => Promise<{ readonly each: number; readonly calls: number; readonly total: number }>;

/** Seconds of one call, timed so. */
export const eachOf =
  (time: BatchTimer): Measure =>
  async () =>
    (await time()).each;

/**
 * Finds how many calls fill a submission, of the slowest side where there are several; each timer then times one
 * submission of that many. Sides go on through the same rotation, so that none finds what another has just read. The
 * caller has run them before (pipelines are compiled, results are checked).
 */
export async function batchTimers(
  runner: Runner,
  sides: readonly Copies[],
  rules: TimingRules,
): Promise<{ readonly calls: number; readonly timers: readonly BatchTimer[] }> {
  let next = 0;
  const timeBatch = async (copies: Copies, calls: number): Promise<number> => {
    const steps = Array.from({ length: calls }, () => copies[next++ % copies.length] as readonly BoundStep[]).flat();
    return Math.max(SHORTEST_SECONDS, secondsOf(await runner.run(steps), rules) / calls);
  };
  const slowest = async (calls: number): Promise<number> => {
    let most = 0;
    for (const copies of sides) most = Math.max(most, await timeBatch(copies, calls));
    return most;
  };
  const callsIn = (each: number, seconds: number): number =>
    callsPerBatch(each, sides[0]?.length ?? 1, seconds, rules.mostCalls);
  let estimate = await slowest(1);
  // A cheap call's first estimate is mostly noise: one larger batch corrects it.
  const few = callsIn(estimate, rules.batchSeconds / 4);
  if (few > 1) estimate = await slowest(few);
  const calls = callsIn(estimate, rules.batchSeconds);
  const timers = sides.map((copies): BatchTimer => async () => {
    const each = await timeBatch(copies, calls);
    return { each, calls, total: each * calls };
  });
  return { calls, timers };
}
