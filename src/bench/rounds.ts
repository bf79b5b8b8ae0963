/**
 * Several measurements in turn, A B C A B C: a slow phase longer than a round slows all of them, and cancels in the
 * ratio of two within a round. tinybench times what runs alone: it sorts the samples of a task, and knows no rounds.
 */
import { Bench } from 'tinybench';
import { clockNow } from '../io/clock.js';
import { median, type Interval } from '../numbers/statistics.js';
import { bootstrap, exponential } from './regression/statistics.js';
import { randomFrom } from '../numbers/random.js';

/** Seconds of one call (or run), measured now. */
export type Measure = () => Promise<number>;

export interface InterleaveRules {
  /** Time for all rounds; at least `leastRounds` are made. */
  readonly seconds: number;
  readonly leastRounds: number;
  readonly mostRounds: number;
  readonly seed: number;
  /** Seconds since any fixed moment. */
  readonly clockNow: () => number;
  /** A round goes there and back, A B B A: a drift that is linear over it cancels. Its times are means of two. */
  readonly mirrored?: boolean;
  /** True once the rounds so far are enough. */
  readonly settled?: (times: readonly (readonly number[])[]) => boolean;
  readonly onRound?: (rounds: number, elapsedSeconds: number, totalSeconds: number) => void;
}

/**
 * Seconds by measurement and round. Each round starts at a random one; every other round goes backwards, so that a
 * linear drift cancels over two rounds and nothing periodic stays in step with one measurement.
 */
export async function interleave(measures: readonly Measure[], rules: InterleaveRules): Promise<number[][]> {
  const random = randomFrom(rules.seed);
  const started = rules.clockNow();
  const times = measures.map((): number[] => []);
  const elapsed = (): number => rules.clockNow() - started;
  let last = 0;
  for (let round = 0; round < rules.mostRounds; round++) {
    // A round that would not end in time is not begun.
    if (
      round >= rules.leastRounds &&
      (elapsed() >= rules.seconds || elapsed() + last > rules.seconds || rules.settled?.(times))
    )
      break;
    const began = elapsed();
    const from = Math.floor(random() * measures.length);
    const order = measures.map((_, i) => (from + (round % 2 === 0 ? i : measures.length - 1 - i)) % measures.length);
    const own = new Float64Array(measures.length);
    for (const at of rules.mirrored ? [...order, ...order.toReversed()] : order)
      own[at]! += await (measures[at] as Measure)();
    times.forEach((list, i) => list.push((own[i] as number) / (rules.mirrored ? 2 : 1)));
    last = elapsed() - began;
    rules.onRound?.(round + 1, elapsed(), rules.seconds);
  }
  return times;
}

const MILLISECONDS = 1000;

/**
 * Median seconds of `times` runs. A run says how long it took: by timestamps of the GPU, or without what the host did
 * beside it.
 */
export async function medianOf(times: number, run: () => Promise<number>): Promise<number> {
  const bench = new Bench({ iterations: times, time: 0, warmup: false, throws: true });
  bench.add('run', async () => ({ overriddenDuration: MILLISECONDS * (await run()) }), { async: true });
  const [task] = await bench.run();
  if (task?.result.state !== 'completed') throw new Error(`runs ended as ${task?.result.state}`);
  return task.result.latency.p50 / MILLISECONDS;
}

/** Most rounds of medians. */
const REPEATS = 5;

/** Median seconds of each in turn, after a round to warm up; one more round at least, others if they end in time. */
export async function mediansOf(measures: readonly Measure[], seconds: number): Promise<number[]> {
  const rules = { seconds, leastRounds: 2, mostRounds: REPEATS + 1, seed: 1, clockNow };
  return (await interleave(measures, rules)).map((times) => median(times.slice(1)));
}

/** Ratio of two series of the same rounds, with its 95 % interval. */
export const ratioOf = (above: readonly number[], below: readonly number[], seed: number): Interval =>
  exponential(
    bootstrap(
      above.map((a, i) => Math.log(a / (below[i] as number))),
      seed,
    ),
  );

/** Round by round sum of several series. */
export const sumOf = (series: readonly (readonly number[])[]): number[] =>
  (series[0] ?? []).map((_, round) => series.reduce((sum, s) => sum + (s[round] as number), 0));
