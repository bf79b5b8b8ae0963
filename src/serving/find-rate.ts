/** The highest rate of requests at which a candidate meets the targets, and replicas that serve the workload's own. */
import type { Interval } from '../cost/evidence.js';
import { type Service, type Setting } from './candidate.js';
import { figuresOf } from './figures.js';
import { perMillion, usdPerSecond } from './price/usd.js';
import type { Bound } from './price/price.js';
import { furthest } from '../numbers/halving.js';
import { leastFor } from './misses.js';
import type { Least } from './workload/read.js';
import { look, trial, whole, type Trial } from './trial.js';
import type { SustainedRate } from './types.js';

/** A bisection ends where the bracket is this narrow. */
const PRECISION = 0.02;
/** Of the fast end, for which nobody buys. */
const FAST_PRECISION = 0.05;
/**
 * Where a bracket is tried, from the rate that meets the targets to the one that does not. A run that misses ends after
 * a fifth of its requests, so that trying nearer to that end costs least: success leaves 1 − x of the bracket for a
 * whole run, failure leaves x for a fifth of one, and (1 − x) = x⁵ where both buy as much.
 */
const PROBE = 0.75;
const LEAST_RATE = 1e-4;
const MOST_RATE = 1e5;

interface Found {
  /** 0 where no rate meets the targets. */
  readonly rate: number;
  readonly at: Trial | null;
  readonly missed: Trial['missed'];
  /** Of the lowest rate that was tried. */
  readonly tooLong: boolean;
  /** Requests that come one at a time miss the targets too. */
  readonly alone: boolean;
}

/** The least rate that the search can tell from this one. */
export const beyond = (rate: number): number => rate * (1 + PRECISION);

/** The highest rate that meets the targets; 0 where none does. @param orNone gives up where `start` does not */
export const sustained = (service: Service, setting: Setting, bound: Bound, start: number, orNone: boolean): number =>
  search(service, setting, bound, start, orNone).rate;

/** How rates are tried. */
interface Manner {
  readonly least: Least;
  /** The first step from the start; each further one is its square. */
  readonly step: number;
  readonly precision: number;
  /** No rate below is asked for. */
  readonly floor: number;
}

/** A look at short runs, then whole ones from what was seen. */
function search(service: Service, setting: Setting, bound: Bound, start: number, orNone = false): Found {
  const floor = orNone ? start : 0;
  const seen = bisect(service, setting, bound, start, {
    least: look(setting, service),
    step: 2,
    precision: 0.1,
    floor,
  });
  return seen.rate === 0 ? seen : refine(service, setting, bound, seen.rate, floor);
}

function refine(service: Service, setting: Setting, bound: Bound, start: number, floor = 0): Found {
  const precision = bound === 'low' ? FAST_PRECISION : PRECISION;
  return bisect(service, setting, bound, start, { least: whole(setting, service), step: 1.1, precision, floor });
}

/** Bisection between a rate that meets the targets and one that does not. */
function bisect(service: Service, { targets, workload }: Setting, bound: Bound, start: number, how: Manner): Found {
  const tryRate = (rate: number): Trial => trial(service, targets, bound, workload.source(rate, how.least));
  let good = 0;
  let at: Trial | null = null;
  let bad = Infinity;
  let missed: Trial['missed'] = null;
  let tooLong = false;
  let rate = start;
  let { step } = how;
  let idle: Trial | null = null;
  while (bad === Infinity || bad - good > how.precision * good) {
    const tried = tryRate(rate);
    if (tried.meets) [good, at] = [rate, tried];
    else {
      [bad, missed, tooLong] = [rate, tried.missed, tried.tooLong];
      // Where requests that hardly ever meet miss the targets, no rate between is worth a run. Near the start a rate
      // mostly takes less than that, since requests that come one at a time take the most iterations.
      if (good === 0 && rate < start / 2 && idle === null) {
        idle = tryRate(Math.min(rate, LEAST_RATE));
        if (!idle.meets) return { rate: 0, at, missed: idle.missed, tooLong: idle.tooLong, alone: true };
      }
    }
    if (good === 0 && rate <= Math.max(how.floor, LEAST_RATE)) break;
    if (bad === Infinity && rate >= MOST_RATE) break;
    if (good > 0 && bad < Infinity) rate = good + PROBE * (bad - good);
    else {
      rate = good === 0 ? Math.max(rate / step, how.floor) : rate * step;
      step = Math.min(4, step ** 2);
    }
  }
  return { rate: good, at, missed, tooLong, alone: false };
}

/** The same candidate with as many --max-num-batched-tokens. */
type SameWith = (maxNumBatchedTokens: number) => Service;

/**
 * Finds the rate by the estimate, then by both ends of the interval.
 * @param pause          awaited between the searches; true ends them
 * @param inOneIteration tries whether prompts in one iteration would help, where no rate meets the targets
 * @param curve          runs more rates, for a picture
 */
export async function findRate(
  service: Service,
  setting: Setting,
  pause: (done: number) => Promise<boolean>,
  inOneIteration: SameWith | null = null,
  curve = false,
): Promise<SustainedRate | null> {
  const { id, servedBy } = service;
  const { request, workload, server } = setting;
  const nothing = { id, servedBy, replicasFor: null, usdPerMillionOutputTokens: null, missedFirst: null } as const;
  const refusedAs = (refused: string, missedFirst: Trial['missed'] = null): SustainedRate => ({
    ...nothing,
    requestsPerSecond: { low: 0, estimate: 0, high: 0 },
    outputTokensPerSecond: 0,
    limitedBy: 'nothing',
    atEstimate: null,
    missedFirst,
    refused,
  });
  if (service.options.blocks < 1) return refusedAs('nothing is left for the cache');
  const least = leastFor(1 - setting.targets.share);
  if (workload.kind === 'trace' && workload.requests < least)
    return refusedAs(
      `${workload.requests} requests are too few to tell a rate that ${100 * setting.targets.share} % of ` +
        `them meet; give a trace of at least ${least}, or a lower --percentile`,
    );
  const estimate = search(service, setting, 'estimate', workload.requestsPerSecond ?? 1);
  if (await pause(1 / 3)) return null;
  if (estimate.rate === 0) return refusedAs(noRateWords(estimate, setting, inOneIteration), estimate.missed);
  const slow = refine(service, setting, 'high', estimate.rate * 0.85);
  if (await pause(2 / 3)) return null;
  const fast = refine(service, setting, 'low', estimate.rate * 1.15);
  // A trace is what it is; other draws of made-up requests may bring more load than this one.
  const margin = workload.kind === 'trace' ? 0 : (slow.at?.margin ?? 0);
  const rates: Interval = {
    low: Math.min(slow.rate / (1 + margin), estimate.rate),
    estimate: estimate.rate,
    high: Math.max(fast.rate, estimate.rate),
  };
  const usd = usdPerSecond(request, server);
  const tokensPerSecond = (at: Trial | null, rate: number): number =>
    rate * (at ? at.tokensEach : workload.meanOutputTokens);
  const perToken = (at: Trial | null, rate: number): number => perMillion(usd ?? 0, tokensPerSecond(at, rate));
  return {
    ...nothing,
    requestsPerSecond: rates,
    outputTokensPerSecond: tokensPerSecond(estimate.at, rates.estimate),
    replicasFor: replicasFor(service, setting, rates, margin),
    usdPerMillionOutputTokens:
      usd === null
        ? null
        : {
            low: perToken(fast.at, rates.high),
            estimate: perToken(estimate.at, rates.estimate),
            high: rates.low === 0 ? null : perToken(slow.at, rates.low),
          },
    limitedBy: estimate.at!.figures.limitedBy,
    missedFirst: estimate.missed,
    atEstimate: estimate.at!.figures,
    refused: null,
    ...(curve ? { curve: curveOf(service, setting, rates) } : {}),
  };
}

/** Words for a candidate that no rate has. The remedy is tried before it is named. */
function noRateWords({ tooLong, missed, alone }: Found, setting: Setting, inOneIteration: SameWith | null): string {
  const { server, workload, targets } = setting;
  if (tooLong) return 'requests are longer than its cache or than --max-model-len';
  if (missed === null) return 'no request has a second token: TPOT is not known';
  if (!alone) return 'no rate meets the targets';
  const target = missed === 'ttft' ? 'the first token' : 'TPOT';
  const late = `requests that come one at a time miss the target of ${target} too`;
  const { maxNumBatchedTokens: most } = server;
  const { meanPromptTokens: prompt } = workload;
  if (inOneIteration === null || missed !== 'ttft' || prompt <= most) return late;
  const raised = 2 ** Math.ceil(Math.log2(prompt));
  const wide = inOneIteration(raised);
  const { meets } = trial(wide, targets, 'estimate', workload.source(LEAST_RATE, look(setting, wide)));
  if (!meets) return `${late}, even with --max-num-batched-tokens ${raised}`;
  const iterations = `${Math.ceil(prompt / most)} iterations of ${most}`;
  return (
    `${late}, since a prompt of ${Math.round(prompt)} tokens takes ${iterations}; ` +
    `take --max-num-batched-tokens ${raised}`
  );
}

/** Rates of a curve, as shares of the sustained one. */
const CURVE = [0.1, 0.25, 0.5, 0.7, 0.85, 0.95, 1, 1.05, 1.15, 1.3];

/** Whole runs, of requests that come for as long as in the search. */
function curveOf(service: Service, setting: Setting, { estimate }: Interval): NonNullable<SustainedRate['curve']> {
  const { workload } = setting;
  return CURVE.map((share) => {
    const requestsPerSecond = share * estimate;
    const requested = workload.source(requestsPerSecond, whole(setting, service));
    const { metrics } = service.run('estimate', requested, () => false);
    const { p99_ttft_ms, p99_tpot_ms } = figuresOf(metrics);
    return { requestsPerSecond, p99_ttft_ms: p99_ttft_ms ?? 0, p99_tpot_ms: p99_tpot_ms ?? 0 };
  });
}

/** Most replicas that are simulated together. Of more, equal parts are: requests come more evenly to the whole. */
const MOST_TOGETHER = 32;

/**
 * By simulation: replicas share the requests by the router, and a number is not the proportion of two rates. Those that
 * prefill come with their own.
 * @param rates that the replicas of the question sustain
 * @param margin for other draws, of what has to be sure
 */
function replicasFor(
  service: Service,
  setting: Setting,
  rates: Interval,
  margin: number,
): SustainedRate['replicasFor'] {
  const { workload, server, targets } = setting;
  const wanted = workload.requestsPerSecond;
  if (wanted === null) return null;
  // Replicas are added one by one, and with those that prefill in groups.
  const unit = server.prefillReplicas === 0 ? 1 : server.replicas;
  const least = whole(setting, service);
  const found = { low: rates.high, estimate: rates.estimate, high: rates.low };
  const serve = (bound: Bound, units: number, asked: number): boolean => {
    // So many have been searched for their highest rate.
    if (units * unit === server.replicas) return asked <= found[bound];
    return trial(service, targets, bound, workload.source(bound === 'high' ? asked * (1 + margin) : asked, least), {
      ...server,
      replicas: units * unit,
      prefillReplicas: units * server.prefillReplicas,
    }).meets;
  };
  const fewest = (bound: Bound, rate: number, known: number): number => {
    let total = Math.max(1, Math.ceil((wanted * server.replicas) / unit / rate - 1e-9));
    // Where parts turn out to need few replicas, fewer and larger parts may need less in all.
    for (;;) {
      const parts = Math.ceil((total * unit) / MOST_TOGETHER);
      const serves = (units: number): boolean => serve(bound, units, wanted / parts);
      const least = Math.max(1, Math.ceil(known / parts / unit));
      const start = Math.max(least, Math.ceil(total / parts));
      let units = start;
      if (serves(start)) units = furthest(start, least - 1, serves);
      else {
        units++;
        while (units < 2 * start + 2 && !serves(units)) units++;
      }
      const found = parts * units;
      if (Math.ceil((found * unit) / MOST_TOGETHER) >= parts) return Math.max(known, found * unit);
      total = found;
    }
  };
  const low = fewest('low', rates.high, 0);
  const estimate = fewest('estimate', rates.estimate, low);
  return {
    requestsPerSecond: wanted,
    replicas: { low, estimate, high: rates.low === 0 ? null : fewest('high', rates.low, estimate) },
  };
}
