/**
 * Serving: the decoder under its continuous-batching loop, beside the simulation of the same requests. The clock is the
 * device's: iterations advance it by their measured time, corrected for the machine's drift, and requests come on it.
 * The simulation's prices are the calibration's, corrected for the drift of kernels that control points show.
 */
import type { Pricer } from '../cost/latency.js';
import { allocatedTokens } from '../eviction/policy.js';
import { openDecoder, type GpuDecoder } from '../decoder/gpu/index.js';
import { decoderEngine } from '../decoder/gpu/serving-engine.js';
import { drive, type Served, type TimedRequest } from '../decoder/serving/drive.js';
import { ServingLoop, type LoopOptions } from '../decoder/serving/loop.js';
import type { Device } from '../gpu/index.js';
import type { Configuration } from '../schedule/schedule.js';
import { correctedSeconds } from '../schema/drift.js';
import { randomFrom } from '../random.js';
import { run } from '../serving/engine.js';
import type { Ended } from '../serving/metrics.js';
import { PriceTables } from '../serving/price.js';
import { quantile } from '../statistics.js';
import { exponentOf, type DriftWatch, type KernelDrift, type Weighed } from './controls.js';
import type { Calibrated } from './calibrated.js';
import { callsOfStep, pricerFor } from './latency.js';
import { callsOfPrompt } from './prefill.js';
import { ApartPricer } from './serving-price.js';

export interface ServingCase {
  readonly id: string;
  readonly c: Configuration;
  /** False: whole prompts, as eviction needs. */
  readonly chunkedPrefill: boolean;
  /** `at-once`: all requests are there at the start, so that the schedule does not depend on times. */
  readonly arrivals: 'poisson' | 'at-once';
  readonly sequences: number;
  readonly requests: number;
  readonly promptTokens: readonly [number, number];
  readonly outputTokens: readonly [number, number];
  readonly maxNumBatchedTokens: number;
}

interface Compared {
  readonly measured: number;
  readonly simulated: number;
}

export interface ServingRow {
  readonly id: string;
  readonly arrivals: ServingCase['arrivals'];
  readonly chunkedPrefill: boolean;
  readonly requests: number;
  readonly sequences: number;
  readonly iterations: Compared;
  readonly preemptions: Compared;
  readonly meanTpotSeconds: Compared;
  readonly meanTtftSeconds: Compared;
  readonly p90E2elSeconds: Compared;
  /** Pairs of requests whose order the schedule decides, and those that ended in the other order. */
  readonly pairs: number;
  readonly inverted: number;
  /** Time of the probe over its reference, the median of the iterations. */
  readonly drift: number;
}

export interface ServingReport {
  readonly model: string;
  /** Points of these requests' own calls that were measured for it, beside the calibration's. */
  readonly ownPoints: number;
  readonly rows: readonly ServingRow[];
}

/** What the simulation may be off by: mean TPOT, p90 of E2EL. */
export const SERVING_TOLERANCES = { tpot: 0.08, e2el: 0.15 } as const;

const BLOCK_TOKENS = 16;
/** Of the largest cache that all sequences could fill, so that some are preempted. */
const CACHE_SHARE = 0.6;
/** Of the rate that the decoder would sustain by the simulation's prices. */
const LOAD = 0.8;
const CONTROLS_SHARE = 0.5;
/** Less than any iteration takes. */
const AT_ONCE_SECONDS = 1e-9;

/** Parts of prompts whose calls are looked at: so many sizes to an octave. */
const SIZES_AN_OCTAVE = 4;

/** Calls of iterations that the case is made of: steps of short and of full caches, and parts of prompts of many sizes. */
export function callsOfServing(of: ServingCase, pricer: Pricer): Weighed[][] {
  const { id, c, sequences, chunkedPrefill, maxNumBatchedTokens } = of;
  const [, most] = of.promptTokens;
  const largest = chunkedPrefill ? Math.min(most, maxNumBatchedTokens) : most;
  const octaves = Math.ceil(Math.log2(largest) * SIZES_AN_OCTAVE);
  const sizes = Array.from({ length: octaves + 1 }, (_, i) =>
    Math.min(largest, Math.round(2 ** (i / SIZES_AN_OCTAVE))),
  );
  const prompt = (promptTokens: number): Weighed[] =>
    callsOfPrompt({ id, c, prompt: { method: 'chunked', promptTokens, chunkTokens: largest } }, pricer);
  return [
    ...[1, most + of.outputTokens[1]].map((contextTokens) =>
      callsOfStep({ id, c, batch: sequences, contextTokens }, pricer),
    ),
    ...[...new Set([...sizes, most])].map(prompt),
  ];
}

interface Rules {
  readonly seed: number;
  readonly calibrated: Calibrated;
  readonly watch: DriftWatch;
  readonly stopped: () => boolean;
  readonly onCase?: (done: number, total: number, id: string) => void;
}

/**
 * Serves and simulates every case.
 * @throws GpuError when the device fails
 */
export async function checkServing(
  device: Device,
  cases: readonly ServingCase[],
  rules: Rules,
): Promise<readonly ServingRow[]> {
  const rows: ServingRow[] = [];
  for (const [i, of] of cases.entries()) {
    if (rules.stopped()) break;
    rules.onCase?.(i, cases.length, of.id);
    const row = await serveCase(device, of, rules);
    if (row) rows.push(row);
  }
  return rows;
}

async function serveCase(device: Device, of: ServingCase, rules: Rules): Promise<ServingRow | null> {
  const { c, sequences } = of;
  const { calibrated, watch } = rules;
  const longest = of.promptTokens[1] + of.outputTokens[1];
  const contextTokens = Math.ceil(longest / 32) * 32;
  const capTokens = allocatedTokens(c.eviction, Infinity);
  const options: LoopOptions = {
    maxNumBatchedTokens: of.maxNumBatchedTokens,
    chunkedPrefill: of.chunkedPrefill,
    blockTokens: BLOCK_TOKENS,
    blocks: Math.max(
      Math.ceil(longest / BLOCK_TOKENS),
      Math.ceil((CACHE_SHARE * sequences * Math.min(longest, capTokens)) / BLOCK_TOKENS),
    ),
    capTokens,
  };
  const priced = (drift: KernelDrift | null): ApartPricer =>
    new ApartPricer(
      new PriceTables(c, drifted(pricerFor(device, calibrated.pricer), drift), {
        method: 'chunked',
        longest: contextTokens,
        mostSequences: sequences,
      }),
      sequences,
    );
  const decoder = await openDecoder(device, c, {
    weights: { storage: 'f16', seed: rules.seed },
    batch: sequences,
    contextTokens,
  });
  const drifts: number[] = [];
  let iterations = 0;
  let served: Served[];
  let requests: TimedRequest[];
  try {
    await compileAll(decoder, contextTokens, options, requestsOf(of, rules.seed, null));
    await watch.renew();
    // Requests come at a rate for this machine.
    await watch.turn(Infinity);
    requests = requestsOf(of, rules.seed, capacityOf(of, options, priced(watch.look()), rules.seed));
    const exponent = exponentOf(
      callsOfStep({ id: of.id, c, batch: sequences, contextTokens }, calibrated.pricer),
      calibrated.driftExponent,
    );
    let before = await watch.run();
    served = await drive(
      new ServingLoop(decoderEngine(decoder, contextTokens), options),
      requests,
      async ({ seconds }) => {
        iterations++;
        const drift = watch.between(before, await watch.run());
        drifts.push(drift);
        await watch.turn(CONTROLS_SHARE * seconds);
        before = await watch.run();
        return correctedSeconds({ seconds: [seconds], drift: [drift] }, exponent)[0] as number;
      },
      rules.stopped,
    );
  } finally {
    decoder.close();
  }
  if (rules.stopped()) return null;
  const simulated = simulate(of, options, priced(watch.look()), requests);
  return {
    id: of.id,
    arrivals: of.arrivals,
    chunkedPrefill: of.chunkedPrefill,
    requests: requests.length,
    sequences,
    iterations: { measured: iterations, simulated: simulated.iterations },
    drift: quantile(drifts, 0.5),
    ...compare(of, served, simulated.ends),
  };
}

/** Times of a request, of the loop or of the simulation. */
export interface Times {
  readonly id: number;
  readonly arrival: number;
  readonly firstToken: number;
  readonly lastToken: number;
  readonly outputTokens: number;
  readonly preemptions: number;
}

/** The figures of both, and the pairs of requests that ended in another order than simulated. */
export function compare(
  { arrivals }: Pick<ServingCase, 'arrivals'>,
  served: readonly Served[],
  simulated: readonly Times[],
): Pick<ServingRow, 'preemptions' | 'meanTpotSeconds' | 'meanTtftSeconds' | 'p90E2elSeconds' | 'pairs' | 'inverted'> {
  const measured = served.map((s): Times => ({ ...s, outputTokens: s.tokens.length }));
  const both = (figure: (of: readonly Times[]) => number): Compared => ({
    measured: figure(measured),
    simulated: figure(simulated),
  });
  const mean = (values: readonly number[]): number => values.reduce((sum, x) => sum + x, 0) / values.length;
  const lasted = (t: Times): number => t.lastToken - t.arrival;
  const endOf = new Map(measured.map((t) => [t.id, t.lastToken]));
  let [pairs, inverted] = [0, 0];
  for (const a of simulated)
    for (const b of simulated) {
      // Where requests come on the clock, ends nearer than the tolerance may change places.
      const slack = arrivals === 'at-once' ? 0 : SERVING_TOLERANCES.e2el * Math.max(lasted(a), lasted(b));
      if (!(b.lastToken - a.lastToken > slack)) continue;
      pairs++;
      if (!(endOf.get(a.id)! < endOf.get(b.id)!)) inverted++;
    }
  return {
    preemptions: both((of) => of.reduce((sum, t) => sum + t.preemptions, 0)),
    meanTpotSeconds: both((of) =>
      mean(of.filter((t) => t.outputTokens > 1).map((t) => (t.lastToken - t.firstToken) / (t.outputTokens - 1))),
    ),
    meanTtftSeconds: both((of) => mean(of.map((t) => t.firstToken - t.arrival))),
    p90E2elSeconds: both((of) => quantile(of.map(lasted), 0.9)),
    pairs,
    inverted,
  };
}

const drifted = (pricer: Pricer, drift: KernelDrift | null): Pricer =>
  drift === null
    ? pricer
    : {
        ...pricer,
        price: (call) => {
          const price = pricer.price(call);
          const by = drift.of(call);
          return { ...price, estimate: by * price.estimate, low: by * price.low, high: by * price.high };
        },
      };

/** Requests with random prompts. @param rate requests a second; null: all at once */
function requestsOf(of: ServingCase, seed: number, rate: number | null): TimedRequest[] {
  const random = randomFrom(seed);
  const whole = ([least, most]: readonly [number, number]): number => least + Math.floor(random() * (most - least + 1));
  let time = 0;
  return Array.from({ length: of.requests }, (_, id) => {
    // An idle simulated replica begins with the first request that comes, before others of the same time.
    time = rate === null ? Math.min(id, 1) * AT_ONCE_SECONDS : time - Math.log(1 - random()) / rate;
    const prompt = Array.from({ length: whole(of.promptTokens) }, () => Math.floor(random() * of.c.geometry.vocab));
    return { id, time, prompt, maxTokens: whole(of.outputTokens) };
  });
}

/** The rate to send: a share of what all requests at once would be served at. */
function capacityOf(of: ServingCase, options: LoopOptions, pricer: ApartPricer, seed: number): number | null {
  if (of.arrivals === 'at-once') return null;
  const { ends } = simulate(of, options, pricer, requestsOf(of, seed, null));
  return (LOAD * ends.length) / Math.max(...ends.map((t) => t.lastToken));
}

function simulate(
  of: ServingCase,
  options: LoopOptions,
  pricer: ApartPricer,
  requests: readonly TimedRequest[],
): { ends: Times[]; iterations: number } {
  const ends: Times[] = [];
  let next = 0;
  const { metrics } = run({
    server: {
      ...options,
      maxNumSeqs: of.sequences,
      prefixCaching: false,
      unitTokens: options.blockTokens,
      sharedPrefixTokens: 0,
      policy: 'fcfs',
      reserveFullPrompt: true,
      replicas: 1,
      router: 'round-robin',
      maxModelLen: Infinity,
      disaggregation: null,
      targets: { ttftSeconds: Infinity, tpotSeconds: Infinity, share: 1 },
    },
    pricer,
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
    onEnd: (e: Ended) =>
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

/** Serves a few tokens of the longest requests, so that no shader is compiled while the clock runs. */
async function compileAll(
  decoder: GpuDecoder,
  contextTokens: number,
  options: LoopOptions,
  requests: readonly TimedRequest[],
): Promise<void> {
  const longest = requests.reduce((a, b) => (b.prompt.length > a.prompt.length ? b : a));
  const loop = new ServingLoop(decoderEngine(decoder, contextTokens), options);
  await drive(loop, [{ ...longest, time: 0, maxTokens: 2 }]);
}
