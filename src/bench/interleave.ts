/**
 * Several measurements in turn, A B C A B C: a slow phase longer than a round slows all of them, and cancels in the
 * ratio of two within a round.
 */
import { bootstrap, exponential, randomFrom, type Interval } from './regression/statistics.js';

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
  /** True once the rounds so far are enough. */
  readonly settled?: (times: readonly (readonly number[])[]) => boolean;
  readonly onRound?: (rounds: number, elapsedSeconds: number) => void;
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
    for (let i = 0; i < measures.length; i++) {
      const at = (from + (round % 2 === 0 ? i : measures.length - 1 - i)) % measures.length;
      (times[at] as number[]).push(await (measures[at] as Measure)());
    }
    last = elapsed() - began;
    rules.onRound?.(round + 1, elapsed());
  }
  return times;
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
