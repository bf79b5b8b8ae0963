/**
 * Repeated timing of dispatches. tinybench is not used here: a sample is not one run of a function but a submission of
 * many dispatches over rotating operands, from which the cost of submitting is taken off, and the calibration keeps raw
 * times; the loop that is left is these few lines, and the statistics are the predictor's.
 */
import type { BoundStep, RunTime } from '../gpu/device.js';

/** What the timing needs of a device; a test gives a fake one. */
export interface Runner {
  run(steps: readonly BoundStep[]): Promise<RunTime>;
}

export type Clock = 'gpu-timestamp' | 'wall';

export interface TimingRules {
  clock: Clock;
  /** Taken off the wall time of each submission. */
  submitSeconds: number;
  /** A submission is filled with calls until it takes this long, so that the clock's resolution does not matter. */
  batchSeconds: number;
  /** Raw samples: at least `minSamples`, then more until `seconds` are spent or there are `maxSamples`. */
  minSamples: number;
  maxSamples: number;
  seconds: number;
}

/** Most calls in one submission: drivers give up on passes that run for seconds. */
const MOST_CALLS = 4096;
/** A time may not come out as nothing, whatever the noise of the overhead that is taken off. */
const SHORTEST_SECONDS = 1e-9;

/**
 * Calls of which each takes `secondsEach`: whole rotations of the operand copies where one fits, else the next copies
 * each time.
 */
export function callsPerBatch(secondsEach: number, copies: number, batchSeconds: number): number {
  const wanted = Math.min(MOST_CALLS, Math.max(1, Math.ceil(batchSeconds / Math.max(secondsEach, SHORTEST_SECONDS))));
  return wanted < copies ? wanted : Math.ceil(wanted / copies) * copies;
}

/**
 * Seconds per call, one entry a repetition. `copies`: the same call bound to different operands, in rotation, so that
 * none finds its operands in a cache; the caller has run it before (pipelines are compiled, results are checked).
 */
export async function timeCalls(
  runner: Runner,
  copies: readonly (readonly BoundStep[])[],
  rules: TimingRules,
): Promise<number[]> {
  const time = await batchTimer(runner, copies, rules);
  const samples: number[] = [];
  let spent = 0;
  while (wantsMore(rules, samples.length, spent)) {
    const { each, total } = await time();
    samples.push(each);
    spent += total;
  }
  return samples;
}

const wantsMore = (rules: TimingRules, count: number, spent: number): boolean =>
  count < rules.minSamples || (count < rules.maxSamples && spent < rules.seconds);

/** Finds how many calls fill a submission; then times one submission after another. */
export async function batchTimer(
  runner: Runner,
  copies: readonly (readonly BoundStep[])[],
  rules: Pick<TimingRules, 'clock' | 'submitSeconds' | 'batchSeconds'>,
): Promise<() => Promise<{ each: number; total: number }>> {
  let next = 0;
  const batch = (calls: number): BoundStep[] =>
    Array.from({ length: calls }, () => copies[next++ % copies.length] as readonly BoundStep[]).flat();
  const timeBatch = async (calls: number): Promise<number> => {
    const time = await runner.run(batch(calls));
    const seconds =
      rules.clock === 'gpu-timestamp' && time.gpuSeconds !== null
        ? time.gpuSeconds
        : time.wallSeconds - rules.submitSeconds;
    return Math.max(SHORTEST_SECONDS, seconds / calls);
  };
  let estimate = await timeBatch(1);
  // A cheap call's first estimate is mostly noise: one larger batch corrects it.
  const calls = callsPerBatch(estimate, copies.length, rules.batchSeconds / 4);
  if (calls > 1) estimate = await timeBatch(calls);
  const perSample = callsPerBatch(estimate, copies.length, rules.batchSeconds);
  return async () => {
    const each = await timeBatch(perSample);
    return { each, total: each * perSample };
  };
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1
    ? (sorted[middle] as number)
    : ((sorted[middle - 1] as number) + (sorted[middle] as number)) / 2;
}
