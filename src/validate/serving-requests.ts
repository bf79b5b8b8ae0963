/** Requests for the serving loop, how many there is time for, and their simulation. */
import type { Budget } from '../io/budget.js';
import type { Served, TimedRequest } from '../decoder/serving/drive.js';
import { replicaOptions, ROUNDS, type LoopOptions } from '../decoder/serving/loop.js';
import { randomFrom } from '../numbers/random.js';
import type { IterationPricer } from '../serving/scheduler/batch.js';
import { run } from '../serving/engine.js';
import type { Speculation } from '../serving/speculation.js';
import type { Configuration } from '../schedule/schedule.js';

export interface ServingRun {
  /**
   * Requests come by a Poisson process at this share of the rate at which the server would serve all at once. Null: all
   * are there at the start, so that the schedule does not depend on times.
   */
  readonly load: number | null;
  readonly requests: number;
}

export interface ServingCase {
  readonly id: string;
  readonly c: Configuration;
  /** False: whole prompts, as eviction needs. */
  readonly chunkedPrefill: boolean;
  readonly runs: readonly ServingRun[];
  /** Requests that are served beforehand. */
  readonly rehearsed: number;
  readonly sequences: number;
  readonly promptTokens: readonly [number, number];
  readonly outputTokens: readonly [number, number];
  readonly maxNumBatchedTokens: number;
  /** Tokens come in rounds. Proposals are accepted by draw: made-up weights propose nothing right. */
  readonly speculation?: Speculation;
}

/** How the loop and its simulation serve. */
export type ServedHow = LoopOptions & Pick<ServingCase, 'sequences' | 'speculation'>;

/** Times of a request, of the loop or of the simulation. */
export interface Times extends Omit<Served, 'tokens'> {
  readonly outputTokens: number;
}

/** Less than any iteration takes. */
const AT_ONCE_SECONDS = 1e-9;

/** Requests with random prompts. @param rate requests a second; null: all at once */
export function requestsOf(of: ServingCase, count: number, seed: number, rate: number | null): TimedRequest[] {
  const random = randomFrom(seed);
  const whole = ([least, most]: readonly [number, number]): number => least + Math.floor(random() * (most - least + 1));
  let time = 0;
  return Array.from({ length: count }, (_, id) => {
    // An idle simulated replica begins with the first request that comes, before others of the same time.
    time = rate === null ? Math.min(id, 1) * AT_ONCE_SECONDS : time - Math.log(1 - random()) / rate;
    const prompt = Array.from({ length: whole(of.promptTokens) }, () => Math.floor(random() * of.c.geometry.vocab));
    return { id, time, prompt, maxTokens: whole(of.outputTokens) };
  });
}

/** What a server of the loop's options would do with these requests. */
export function simulate(
  { sequences, speculation, ...options }: ServedHow,
  pricer: IterationPricer,
  requests: readonly TimedRequest[],
): { ends: Times[]; iterations: number } {
  const ends: Times[] = [];
  let next = 0;
  const { metrics } = run({
    server: {
      ...replicaOptions(options, sequences),
      replicas: 1,
      router: 'round-robin',
      maxModelLen: Infinity,
      disaggregation: null,
      targets: { ttftSeconds: Infinity, tpotSeconds: Infinity, share: 1 },
    },
    pricer,
    ...(speculation ? { depth: { ...ROUNDS, pricer: null, speculation } } : {}),
    source: {
      next: (draft) => {
        const request = requests[next];
        if (!request) return false;
        next++;
        Object.assign(draft, {
          time: request.time,
          promptTokens: request.prompt.length,
          outputTokens: request.maxTokens,
          priority: 0,
          session: -1,
          turn: 0,
          hashes: null,
        });
        return true;
      },
      after: () => false,
    },
    onEnd: (e) =>
      ends.push({
        id: e.number,
        arrival: e.arrival,
        firstToken: e.arrival + e.ttftSeconds,
        lastToken: e.arrival + e.e2elSeconds,
        outputTokens: e.outputTokens,
        preemptions: e.preemptions,
      }),
  });
  return { ends, iterations: metrics.iterations };
}

/**
 * Prices that are off at random: all together by up to `share`, and each iteration by one of `ratios`, times over
 * prices of iterations that ran.
 */
export function disturbed(
  pricer: IterationPricer,
  share: number,
  ratios: readonly number[],
  seed: number,
): IterationPricer {
  const random = randomFrom(seed);
  const all = 1 + share * (2 * random() - 1);
  const drawn = (): number => ratios[Math.floor(random() * ratios.length)] ?? 1;
  return { knots: pricer.knots, seconds: (batch) => all * drawn() * pricer.seconds(batch) };
}

/** Requests a second that would be served if all were there at once. */
export function capacityOf(how: ServedHow, pricer: IterationPricer, requests: readonly TimedRequest[]): number {
  const { ends } = simulate(how, pricer, requests);
  return ends.length / Math.max(...ends.map((t) => t.lastToken));
}

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
