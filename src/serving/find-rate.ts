/** The highest rate of requests at which a candidate meets the targets. */
import type { Interval } from '../cost/evidence.js';
import { figuresOf, type Service, type Setting } from './candidate.js';
import type { Metrics, Targets } from './metrics.js';
import type { Bound } from './price/price.js';
import type { Requested } from './question.js';
import type { RunFigures, SustainedRate } from './types.js';

/** Made-up requests come for at least this long, so that a batch grows to what a rate makes of it. */
const LEAST_SECONDS = 120;
/** The bisection ends where the bracket is this narrow. */
const PRECISION = 0.02;
const LEAST_RATE = 1e-4;
const MOST_RATE = 1e5;

/** A run under targets. */
export interface Trial {
  readonly meets: boolean;
  readonly missed: 'ttft' | 'tpot' | null;
  readonly figures: RunFigures;
  /** Too many requests are longer than the cache, or than the server takes. */
  readonly tooLong: boolean;
}

/** Requests that may miss a target, one or both. */
const allowed = (targets: Targets, requests: number): number => (1 - targets.share) * requests + 1e-9;

/** Serves requests until too many of them have missed a target. */
export function trial(service: Service, targets: Targets, bound: Bound, requested: Requested): Trial {
  const missed = (m: Metrics, requests: number): Trial['missed'] => {
    if (m.completed - m.good + m.rejected <= allowed(targets, requests)) return null;
    // A request that is refused has no first token.
    return m.lateFirst + m.rejected >= m.slowTokens ? 'ttft' : 'tpot';
  };
  const result = service.run(bound, requested, (m) => missed(m, requested.requests) !== null);
  const { metrics } = result;
  const served = metrics.completed + metrics.rejected;
  const found = missed(metrics, served);
  return {
    // Without a second token nothing is known about the time between tokens.
    meets: result.finished && metrics.tpot.count > 0 && found === null,
    missed: found,
    figures: figuresOf(metrics),
    tooLong: metrics.rejected > allowed(targets, served),
  };
}

interface Found {
  /** 0 where no rate meets the targets. */
  readonly rate: number;
  readonly at: Trial | null;
  readonly missed: Trial['missed'];
  /** Of the lowest rate that was tried. */
  readonly tooLong: boolean;
}

/** The least rate that the search can tell from this one. */
export const beyond = (rate: number): number => rate * (1 + PRECISION);

/** The highest rate that meets the targets; 0 where none does. @param orNone gives up where `start` does not */
export const sustained = (service: Service, setting: Setting, bound: Bound, start: number, orNone: boolean): number =>
  search(service, setting, bound, start, orNone).rate;

/** Bisection between a rate that meets the targets and one that does not. */
function search(service: Service, { targets, workload }: Setting, bound: Bound, start: number, orNone = false): Found {
  let good = 0;
  let at: Trial | null = null;
  let bad = Infinity;
  let missed: Trial['missed'] = null;
  let tooLong = false;
  let rate = start;
  while (bad === Infinity || bad - good > PRECISION * good) {
    const tried = trial(service, targets, bound, workload.source(rate, LEAST_SECONDS));
    if (tried.meets) [good, at] = [rate, tried];
    else [bad, missed, tooLong] = [rate, tried.missed, tried.tooLong];
    if (good === 0 && (orNone || rate <= LEAST_RATE)) break;
    if (bad === Infinity && rate >= MOST_RATE) break;
    rate = good === 0 ? rate / 4 : bad === Infinity ? rate * 2 : (good + bad) / 2;
  }
  return { rate: good, at, missed, tooLong };
}

/**
 * Finds the rate by the estimate, then by both ends of the interval.
 * @param pause awaited between the searches; true ends them
 * @param curve runs more rates, for a picture
 */
export async function findRate(
  service: Service,
  setting: Setting,
  pause: (done: number) => Promise<boolean>,
  curve = false,
): Promise<SustainedRate | null> {
  const { id, servedBy } = service;
  const { request, workload, server } = setting;
  const nothing = { id, servedBy, replicasFor: null, usdPerMillionOutputTokens: null, missedFirst: null } as const;
  const none = {
    requestsPerSecond: { low: 0, estimate: 0, high: 0 },
    outputTokensPerSecond: 0,
    limitedBy: 'nothing',
    atEstimate: null,
  } as const;
  if (service.options.blocks < 1) return { ...nothing, ...none, refused: 'nothing is left for the cache' };
  const estimate = search(service, setting, 'estimate', workload.requestsPerSecond ?? 1);
  if (await pause(1 / 3)) return null;
  if (estimate.rate === 0)
    return {
      ...nothing,
      ...none,
      missedFirst: estimate.missed,
      refused: noRateWords(estimate),
    };
  const slow = search(service, setting, 'high', estimate.rate * 0.8);
  if (await pause(2 / 3)) return null;
  const fast = search(service, setting, 'low', estimate.rate * 1.2);
  const rates: Interval = {
    low: Math.min(slow.rate, estimate.rate),
    estimate: estimate.rate,
    high: Math.max(fast.rate, estimate.rate),
  };
  const gpus = request.gpus * (server.replicas + server.prefillReplicas);
  const usdPerSecond = request.usdPerHour === null ? null : (request.usdPerHour * gpus) / 3600;
  const perToken = (rate: number): number => ((usdPerSecond ?? 0) * 1e6) / (rate * workload.meanOutputTokens);
  const wanted = workload.requestsPerSecond;
  // Replicas share the rate alike, so they are counted in proportion; those that prefill come with their own.
  const share = server.prefillReplicas === 0 ? server.replicas : 1;
  const groups = (rate: number): number => Math.ceil(((wanted ?? 0) * share) / rate - 1e-9) * (server.replicas / share);
  return {
    ...nothing,
    requestsPerSecond: rates,
    outputTokensPerSecond: rates.estimate * workload.meanOutputTokens,
    replicasFor:
      wanted === null
        ? null
        : {
            requestsPerSecond: wanted,
            replicas: {
              low: groups(rates.high),
              estimate: groups(rates.estimate),
              high: rates.low === 0 ? null : groups(rates.low),
            },
          },
    usdPerMillionOutputTokens:
      usdPerSecond === null
        ? null
        : {
            low: perToken(rates.high),
            estimate: perToken(rates.estimate),
            high: rates.low === 0 ? null : perToken(rates.low),
          },
    limitedBy: estimate.at!.figures.limitedBy,
    missedFirst: estimate.missed,
    atEstimate: estimate.at!.figures,
    refused: null,
    ...(curve ? { curve: curveOf(service, setting, rates) } : {}),
  };
}

function noRateWords({ tooLong, missed }: Found): string {
  if (tooLong) return 'requests are longer than its cache or than --max-model-len';
  return missed === null ? 'no request has a second token: TPOT is not known' : 'no rate meets the targets';
}

/** Rates of a curve, as shares of the sustained one. */
const CURVE = [0.1, 0.25, 0.5, 0.7, 0.85, 0.95, 1, 1.05, 1.15, 1.3];

/** Whole runs, of requests that come for as long as in the search. */
function curveOf(service: Service, { workload }: Setting, { estimate }: Interval): NonNullable<SustainedRate['curve']> {
  return CURVE.map((share) => {
    const requestsPerSecond = share * estimate;
    const { metrics } = service.run('estimate', workload.source(requestsPerSecond, LEAST_SECONDS), () => false);
    const { p99_ttft_ms, p99_tpot_ms } = figuresOf(metrics);
    return { requestsPerSecond, p99_ttft_ms: p99_ttft_ms ?? 0, p99_tpot_ms: p99_tpot_ms ?? 0 };
  });
}
