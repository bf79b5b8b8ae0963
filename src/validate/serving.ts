/**
 * Serving: the decoder under its continuous-batching loop, beside the simulation of the same requests. The clock is the
 * device's: iterations advance it by their measured time, corrected for the machine's drift, and requests come on it.
 * Before that the loop rehearses: it serves other requests. Their iterations correct the calibration's prices, and with
 * these prices the simulation says which rate of requests the server can be given.
 */
import { OUT_OF_TIME, type Budget } from '../io/budget.js';
import { allocatedTokens } from '../eviction/policy.js';
import { decoderEngine } from '../decoder/gpu/serving-engine.js';
import { acceptedOf } from '../serving/speculation.js';
import { drive, type Served, type TimedRequest } from '../decoder/serving/drive.js';
import { ServingLoop, type SequenceEngine } from '../decoder/serving/loop.js';
import type { Device } from '../gpu/index.js';
import { PriceTables } from '../serving/price/price.js';
import { mean, quantile, sum } from '../numbers/statistics.js';
import type { DriftWatch } from './controls.js';
import type { Calibrated } from './calibrated.js';
import { withDecoder, type CheckRules, type NotRun } from './decoding.js';
import { pricerFor } from './latency.js';
import {
  correctedSeconds,
  driftsOf,
  fitRehearsal,
  priceRan,
  ratiosOf,
  recording,
  replaying,
  type Exponents,
  type Priced,
  type Ran,
} from './serving-iterations.js';
import { ApartPricer, roundPrice, type Correction } from './serving-price.js';
import {
  capacityOf,
  caseSeconds,
  disturbed,
  LEAST_REHEARSED,
  LEAST_RUN,
  leastRunSeconds,
  OPENED,
  REHEARSAL_SHARE,
  requestsIn,
  requestsOf,
  simulate,
  SIMULATED,
  type ServedHow,
  type ServingCase,
  type ServingRun,
  type Times,
} from './serving-requests.js';

interface Compared {
  readonly measured: number;
  readonly simulated: number;
}

/** Figures of the requests that were served and of those that were simulated. */
interface Figures {
  readonly preemptions: Compared;
  readonly meanTpotSeconds: Compared;
  readonly meanTtftSeconds: Compared;
  readonly p90E2elSeconds: Compared;
  /** Pairs of requests whose order the schedule decides, and those that ended in the other order. */
  readonly pairs: number;
  readonly inverted: number;
}

/** Calls of the iterations that ran: by the calibration's prices, and by those that the rehearsal corrected. */
interface PricedTwice extends Priced {
  readonly calibrated: number;
}

export interface ServingRow extends Figures, Pick<ServingCase, 'id' | 'chunkedPrefill' | 'sequences'> {
  /** Share of the capacity at which requests came; null: all at once. */
  readonly load: number | null;
  readonly requests: number;
  readonly iterations: Compared;
  /** Output tokens of an iteration, of all sequences. */
  readonly tokensPerIteration: Compared;
  /** The error of prices alone: decode steps and chunks of prompts that ran, beside the prices of just these. */
  readonly prices: { readonly steps: PricedTwice; readonly chunks: PricedTwice };
  /**
   * The error of the schedule alone: iterations take in the simulation what they took in the loop, as long as they are
   * the same ones.
   */
  readonly replay: Figures & { readonly iterations: number };
  /** Seconds of the decoder's calls by the wall, and by the device's clock without correction. */
  readonly wallSeconds: number;
  readonly deviceSeconds: number;
  /** Time of the probe over its reference, the median of the calls. */
  readonly drift: number;
  readonly ran: readonly Ran[];
}

/** What was measured before the requests of a case came. */
export interface Rehearsal {
  readonly id: string;
  readonly exponents: Exponents;
  readonly correction: Correction;
  readonly ran: readonly Ran[];
}

export interface ServingReport {
  readonly model: string;
  readonly rehearsals: readonly Rehearsal[];
  readonly rows: readonly ServingRow[];
  /** Runs that there was no time for. */
  readonly notRun: readonly NotRun[];
}

/** What the simulation may be off by: mean TPOT, p90 of E2EL. */
export const SERVING_TOLERANCES = { tpot: 0.08, e2el: 0.15 } as const;

/** Ends of one iteration differ by less: times are added up from different arrivals. */
const SAME_SECONDS = 1e-9;
const BLOCK_TOKENS = 16;
/** Of the largest cache that all sequences could fill, so that some are preempted. */
const CACHE_SHARE = 0.6;
/** Simulations that tell which orders the schedule decides. */
const DISTURBED = 256;
/** Prompts of so few tokens go to kernels that are compiled apart. */
const SHORT_PROMPTS = [1, 2, 3];

interface Rules extends CheckRules {
  readonly budget: Budget;
  readonly stopped: () => boolean;
  readonly watch: Pick<DriftWatch, 'run' | 'between'>;
}

type Findings = Pick<ServingReport, 'rehearsals' | 'rows' | 'notRun'>;

/**
 * Serves and simulates every case, with as many requests as there is time for.
 * @throws GpuError when the device fails
 */
export async function checkServing(
  device: Device,
  cases: readonly ServingCase[],
  rules: Rules & { readonly calibrated: Calibrated },
): Promise<Findings> {
  const { budget } = rules;
  const found: Findings[] = [];
  for (const [i, of] of cases.entries()) {
    if (rules.stopped()) break;
    if (i > 0 && !budget.fits(OPENED, LEAST_RUN)) {
      found.push(lateCase(of));
      continue;
    }
    rules.onCase?.(i, cases.length, of.id);
    const { speculation } = of;
    const longest = of.promptTokens[1] + of.outputTokens[1] + (speculation?.draftTokens ?? 0);
    const contextTokens = Math.ceil(longest / 32) * 32;
    const calibrated = pricerFor(device, rules.calibrated.pricer);
    const reach = { method: 'chunked', longest: contextTokens, mostSequences: of.sequences } as const;
    const tables = new PriceTables(of.c, calibrated, reach);
    const began = budget.now();
    const options = { batch: of.sequences, contextTokens, ...(speculation ? { speculation } : {}) };
    await withDecoder(device, of.c, rules.seed, options, async (decoder) => {
      const engine = decoderEngine(decoder, contextTokens, speculation, (request, token) =>
        speculation ? acceptedOf(speculation, request, token) : 0,
      );
      const round = speculation ? roundPrice(of.c, calibrated, of.sequences, speculation) : null;
      await compileAll(engine, of, loopOptions(of));
      budget.note(OPENED, budget.now() - began);
      const pricer = new ApartPricer(tables, of.sequences, round);
      found.push(await serveCase(engine, of, pricer, rules, cases.length - i));
    });
  }
  return {
    rehearsals: found.flatMap(({ rehearsals }) => rehearsals),
    rows: found.flatMap(({ rows }) => rows),
    notRun: found.flatMap(({ notRun }) => notRun),
  };
}

const late = ({ id }: ServingCase, { load }: ServingRun): NotRun => ({
  id: `${id}, ${load === null ? 'all requests at once' : `a load of ${load}`}`,
  reason: OUT_OF_TIME,
});
const lateCase = (of: ServingCase): Findings => ({
  rehearsals: [],
  rows: [],
  notRun: of.runs.map((run) => late(of, run)),
});

function loopOptions({ c, sequences, promptTokens, outputTokens, ...of }: ServingCase): ServedHow {
  const longest = promptTokens[1] + outputTokens[1];
  const capTokens = allocatedTokens(c.eviction, Infinity);
  const least = Math.ceil(longest / BLOCK_TOKENS);
  const shared = Math.ceil((CACHE_SHARE * sequences * Math.min(longest, capTokens)) / BLOCK_TOKENS);
  return {
    sequences,
    maxNumBatchedTokens: of.maxNumBatchedTokens,
    chunkedPrefill: of.chunkedPrefill,
    blockTokens: BLOCK_TOKENS,
    blocks: Math.max(least, shared),
    capTokens,
    ...(of.speculation ? { speculation: of.speculation } : {}),
  };
}

/**
 * Rehearses, then serves and simulates the runs of a case.
 * @param pricer of iterations, by the calibration
 * @param cases that are left, this one included
 */
export async function serveCase(
  engine: SequenceEngine,
  of: ServingCase,
  pricer: ApartPricer,
  rules: Rules,
  cases = 1,
): Promise<Findings> {
  const { id, sequences } = of;
  const { seed } = rules;
  const options = loopOptions(of);
  const rows: ServingRow[] = [];
  const notRun: NotRun[] = [];
  // Other requests than those that are compared.
  const others = requestsOf(of, of.rehearsed, seed + 1, null);
  const rehearsing = rules.budget.part((REHEARSAL_SHARE * rules.budget.left) / cases);
  let iterations = -1;
  const { ran, served } = await serve(engine, options, others, NO_CORRECTION, {
    watch: rules.watch,
    stopped: () =>
      rules.stopped() || rules.budget.left <= 0 || (++iterations >= LEAST_REHEARSED && rehearsing.left <= 0),
  });
  const secondsPerRequest = served.length === 0 ? Infinity : rehearsing.spent / served.length;
  const known = ran.length >= Math.min(LEAST_REHEARSED, of.rehearsed);
  if (!known || rules.stopped()) return lateCase(of);
  const rehearsal: Rehearsal = { id, ...fitRehearsal(ran, pricer), ran };
  const priced = pricer.correctedBy(rehearsal.correction);
  const capacity = capacityOf(options, priced, requestsOf(of, of.rehearsed, seed, null));
  rules.budget.expect(LEAST_RUN, leastRunSeconds(secondsPerRequest));
  const budget = rules.budget.part(caseSeconds(rules.budget, cases));
  for (const [i, run] of of.runs.entries()) {
    const { load } = run;
    const requestsFor = (seconds: number): number =>
      requestsIn(seconds, run, sequences, secondsPerRequest, budget.expected(SIMULATED));
    // One run with enough requests rather than several without.
    const count = requestsFor(budget.left / (of.runs.length - i)) || requestsFor(budget.left);
    if (count === 0) {
      notRun.push(late(of, run));
      continue;
    }
    const requests = requestsOf(of, count, seed, load === null ? null : load * capacity);
    const done = await serve(engine, options, requests, rehearsal.exponents, {
      watch: rules.watch,
      stopped: () => rules.stopped() || budget.left <= 0,
    });
    if (rules.stopped()) break;
    if (done.served.length < count) {
      notRun.push(late(of, run));
      continue;
    }
    const began = budget.now();
    rows.push(rowOf(of, load, options, { requests, ...done }, pricer, rehearsal));
    budget.expect(SIMULATED, (budget.now() - began) / count);
  }
  return { rehearsals: [rehearsal], rows, notRun };
}

export const NO_CORRECTION: Exponents = { step: 0, chunk: 0 };

/**
 * Serves requests, with the probe beside each call.
 * @param exponents by which the clock is corrected for the machine's drift
 */
export async function serve(
  own: SequenceEngine,
  options: ServedHow,
  requests: readonly TimedRequest[],
  exponents: Exponents,
  { watch, stopped }: Pick<Rules, 'watch' | 'stopped'>,
): Promise<{ served: Served[]; ran: Ran[] }> {
  const ran: Ran[] = [];
  let last = await watch.run();
  const { engine, take } = recording(own, async () => {
    const before = last;
    last = await watch.run();
    return watch.between(before, last);
  });
  const served = await drive(
    new ServingLoop(engine, options),
    requests,
    () => {
      const one = take();
      ran.push(one);
      return correctedSeconds(one, exponents);
    },
    stopped,
  );
  return { served, ran };
}

/** The figures of one run, and where their errors come from. */
export function rowOf(
  of: Pick<ServingCase, 'id' | 'chunkedPrefill' | 'sequences'>,
  load: number | null,
  options: ServedHow,
  { requests, served, ran }: { requests: readonly TimedRequest[]; served: readonly Served[]; ran: readonly Ran[] },
  pricer: ApartPricer,
  rehearsal: Omit<Rehearsal, 'id'>,
): ServingRow {
  const { id, chunkedPrefill, sequences } = of;
  const { exponents } = rehearsal;
  const priced = pricer.correctedBy(rehearsal.correction);
  const ratios = ratiosOf(rehearsal.ran, exponents, priced);
  const simulated = simulate(options, priced, requests);
  const others = Array.from(
    { length: DISTURBED },
    (_, i) => simulate(options, disturbed(priced, SERVING_TOLERANCES.e2el, ratios, i), requests).ends,
  );
  const replay = replaying(ran, exponents, priced);
  const replayed = simulate(options, replay.pricer, requests);
  const own = priceRan(ran, exponents, priced);
  const calibrated = priceRan(ran, exponents, pricer);
  const drifts = driftsOf(ran);
  const tokens = sum(requests.map(({ maxTokens }) => maxTokens));
  return {
    id,
    load,
    chunkedPrefill,
    requests: requests.length,
    sequences,
    iterations: { measured: ran.length, simulated: simulated.iterations },
    tokensPerIteration: { measured: tokens / ran.length, simulated: tokens / simulated.iterations },
    ...compare(served, simulated.ends, others),
    prices: {
      steps: { ...own.steps, calibrated: calibrated.steps.priced },
      chunks: { ...own.chunks, calibrated: calibrated.chunks.priced },
    },
    replay: { ...compare(served, replayed.ends), iterations: replay.replayed() },
    wallSeconds: sum(ran.map(({ wallSeconds }) => wallSeconds)),
    deviceSeconds: sum(ran.map((one) => correctedSeconds(one, NO_CORRECTION))),
    drift: quantile([...drifts.steps, ...drifts.chunks], 0.5),
    ran,
  };
}

/**
 * The figures of both, and the pairs of requests that ended in another order than simulated.
 * @param others simulations of the same requests with prices that are off: only what ends in the same order in all of
 *   them is decided by the schedule
 */
export function compare(
  served: readonly Served[],
  simulated: readonly Times[],
  others: readonly (readonly Times[])[] = [],
): Figures {
  const measured = served.map((s): Times => ({ ...s, outputTokens: s.tokens.length }));
  const both = (figure: (of: readonly Times[]) => number): Compared => ({
    measured: figure(measured),
    simulated: figure(simulated),
  });
  const lasted = (t: Times): number => t.lastToken - t.arrival;
  const ends = (of: readonly Times[]): Map<number, number> => new Map(of.map((t) => [t.id, t.lastToken]));
  const expected = [simulated, ...others].map(ends);
  const found = ends(measured);
  const isBefore = (a: Times, b: Times, by: ReadonlyMap<number, number>): boolean =>
    by.get(b.id)! - by.get(a.id)! > SAME_SECONDS;
  let [pairs, inverted] = [0, 0];
  for (const a of simulated)
    for (const b of simulated) {
      if (!expected.every((by) => isBefore(a, b, by))) continue;
      pairs++;
      if (!isBefore(a, b, found)) inverted++;
    }
  return {
    preemptions: both((of) => sum(of.map((t) => t.preemptions))),
    meanTpotSeconds: both((of) =>
      mean(of.filter((t) => t.outputTokens > 1).map((t) => (t.lastToken - t.firstToken) / (t.outputTokens - 1))),
    ),
    meanTtftSeconds: both((of) => mean(of.map((t) => t.firstToken - t.arrival))),
    p90E2elSeconds: both((of) => quantile(of.map(lasted), 0.9)),
    pairs,
    inverted,
  };
}

/** Serves a few tokens of the shortest and the longest prompts, so that no shader is compiled while the clock runs. */
async function compileAll(engine: SequenceEngine, of: ServingCase, options: ServedHow): Promise<void> {
  const lengths = [of.promptTokens[1], ...SHORT_PROMPTS];
  const requests = lengths.map((length, id): TimedRequest => {
    const prompt = Array.from({ length }, (_, i) => i % of.c.geometry.vocab);
    return { id, time: 0, prompt, maxTokens: 2 };
  });
  await drive(new ServingLoop(engine, options), requests);
}
