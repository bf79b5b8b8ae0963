/**
 * Two versions of a call measured in turn. A round is before-now-now-before or its mirror image, at random: drift that
 * is linear over a round cancels, and nothing periodic can stay in step with one side. The ratio of a round is one
 * value; noise that lasts longer than a round (tens of milliseconds) hits both sides and leaves the ratio alone.
 */
import type { Clock } from '../../gpu/platform.js';
import { secondsOf, type Runner } from '../timing.js';
import type { BoundStep } from '../../gpu/index.js';
import { bootstrap, exponential, isSettled, randomFrom, type Interval } from './statistics.js';

/** The same call bound to several sets of operands, which take turns so that none is found in a cache. */
type Copies = readonly (readonly BoundStep[])[];

export interface Pair {
  readonly before: Copies;
  readonly now: Copies;
}

export interface RoundRules {
  readonly clock: Clock;
  /** Taken off the wall time of each submission, where there are no timestamps. */
  readonly submitSeconds: number;
  /** A submission is filled with calls until it takes this long. */
  readonly batchSeconds: number;
  /** Fraction, such as 0.05. */
  readonly threshold: number;
  /** Time for all rounds of this call. */
  readonly seconds: number;
  readonly seed: number;
  /** Seconds since any fixed moment. */
  readonly clockNow: () => number;
}

/** Seconds a call in one round, each the mean of the side's two turns. */
export interface Round {
  readonly before: number;
  readonly now: number;
}

export interface PairedTimes {
  readonly rounds: readonly Round[];
  /** now / before, with the 95 % interval. */
  readonly ratio: Interval;
  /** Calls in one submission. */
  readonly callsPerBatch: number;
}

/**
 * An interval of fewer rounds is not to be trusted. In simulated heavy noise 24 or 32 are no better. Noise that lasts
 * for several rounds makes intervals too narrow, and the interval accounts for that (statistics.ts, correlationFactor).
 */
export const LEAST_ROUNDS = 16;
const MOST_ROUNDS = 4000;
/** Each look at the interval costs a bootstrap; the next one is due after this factor more rounds. */
const GROWTH = 1.25;
const SHORTEST_SECONDS = 1e-9;

/** Most calls in one submission: drivers give up on passes that run for seconds. */
const MOST_CALLS = 4096;

/** No whole rotations, unlike a calibration's batches: these can take long, and a round must be short. */
const callsFor = (each: number, batchSeconds: number): number =>
  Math.min(MOST_CALLS, Math.max(1, Math.ceil(batchSeconds / each)));

const logRatios = (rounds: readonly Round[]): number[] => rounds.map((r) => Math.log(r.now / r.before));

/** Rounds until the interval is settled or the time is spent; at least LEAST_ROUNDS. */
export async function measurePair(runner: Runner, pair: Pair, rules: RoundRules): Promise<PairedTimes> {
  const started = rules.clockNow();
  const random = randomFrom(rules.seed);
  let next = 0;
  // Both sides go on through the same rotation, so that neither finds what the other has just read.
  const time = async (side: Copies, calls: number): Promise<number> => {
    const steps = Array.from({ length: calls }, () => side[next++ % side.length] as readonly BoundStep[]).flat();
    const run = await runner.run(steps);
    return Math.max(SHORTEST_SECONDS, secondsOf(run, rules) / calls);
  };
  /** The faster of two: the slower one mostly includes other work of the machine. */
  const trial = async (calls: number): Promise<number> => {
    const seconds = [
      await time(pair.before, calls),
      await time(pair.now, calls),
      await time(pair.now, calls),
      await time(pair.before, calls),
    ] as const;
    return Math.max(Math.min(seconds[0], seconds[3]), Math.min(seconds[1], seconds[2]));
  };
  const each = await trial(callsFor(await trial(1), rules.batchSeconds / 2));
  // As many calls on both sides: what a submission costs by itself weighs equally.
  const calls = callsFor(each, rules.batchSeconds);

  const rounds: Round[] = [];
  let ratio: Interval = { estimate: 1, low: 0, high: Infinity };
  let look = LEAST_ROUNDS;
  for (;;) {
    rounds.push(await oneRound(random() < 0.5, (side) => time(pair[side], calls)));
    const spent = rules.clockNow() - started >= rules.seconds || rounds.length >= MOST_ROUNDS;
    const last = spent && rounds.length >= LEAST_ROUNDS;
    if (!last && rounds.length < look) continue;
    look = Math.ceil(look * GROWTH);
    ratio = exponential(bootstrap(logRatios(rounds), rules.seed));
    if (last || isSettled(ratio, rules.threshold)) return { rounds, ratio, callsPerBatch: calls };
  }
}

async function oneRound(beforeFirst: boolean, time: (side: keyof Round) => Promise<number>): Promise<Round> {
  const [outer, inner]: readonly [keyof Round, keyof Round] = beforeFirst ? ['before', 'now'] : ['now', 'before'];
  const first = await time(outer);
  const middle = ((await time(inner)) + (await time(inner))) / 2;
  const ends = (first + (await time(outer))) / 2;
  return beforeFirst ? { before: ends, now: middle } : { before: middle, now: ends };
}
