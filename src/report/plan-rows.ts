/** Fields of a row as text, for every printer of a plan. */
import type { PathChoice } from '../codecs/codec.js';
import { choiceOf } from '../codecs/paths.js';
import { isEstimate, type Interval } from '../cost/evidence.js';
import type { DecodeFigures, LimitedBy, Plan, PlanReport } from '../plan/types.js';
import { formatCount, formatMilliseconds, formatNumber } from '../units.js';

/** Decode figures that a table shows: at the time target where one was set. */
export const shownDecode = (p: Plan): DecodeFigures => p.atTarget ?? p.decode;

export const pathLabel = (p: Plan): PathChoice => choiceOf(p.path, p.variant === 'materialised');

export const batchLabel = (p: Plan): string =>
  p.maxBatch.exact === p.maxBatch.onGrid ? String(p.maxBatch.exact) : `${p.maxBatch.exact} (${p.maxBatch.onGrid})`;

/** `35.1 (18–90)` in milliseconds; `11.3s (7.51–18.9s)` where the interval reaches ten seconds. */
export function timeLabel(seconds: Interval | null): string {
  if (!seconds) return '–';
  if (seconds.high >= 10)
    return `${formatNumber(seconds.estimate)}s (${formatNumber(seconds.low)}–${formatNumber(seconds.high)}s)`;
  return `${formatMilliseconds(seconds.estimate)} (${rangeLabel(seconds)})`;
}

/** The same with its unit in either case: `35.1 (18–90) ms`. */
export const timeWords = (seconds: Interval | null): string =>
  seconds && seconds.high < 10 ? `${timeLabel(seconds)} ms` : timeLabel(seconds);

/** Ends of an interval in milliseconds, with as many digits as tell them apart. */
const rangeLabel = (s: Interval): string => `${formatMilliseconds(s.low)}–${formatMilliseconds(s.high)}`;

export const rateLabel = (d: DecodeFigures): string =>
  d.tokensPerSecond ? formatCount(d.tokensPerSecond.estimate) : '–';

/** Most of a time is priced by these kernels. */
const MOST = 0.5;

/**
 * Whose kernels a row's time is: `vLLM 0.24.0` where that stack runs the plan; in parentheses where it has the kernels
 * and does not run the plan; `attainable` where nobody has measured such kernels.
 */
export function kernelsLabel(p: Plan): string {
  const d = shownDecode(p);
  if (!d.pricedBy || d.evidence === null) return '–';
  if (isEstimate(d.evidence)) return d.evidence;
  const by = Object.entries(d.pricedBy).find(([, share]) => share >= MOST)?.[0] ?? 'several';
  return p.servedBy !== null || by === 'lla-sim' ? by : `(${by})`;
}

/** Share of the attainable rate from which a row without measured kernels beats the full cache. */
export function breakEvenLabel({ breakEven }: Plan): string {
  if (!breakEven) return '';
  return breakEven.cannot ? 'cannot' : `${Math.ceil(breakEven.estimate * 100)} %`;
}

/** The metric of the quality column: the one a target names, else GSM8K, else the first that is published. */
export function shownMetric(report: PlanReport): string {
  const target = report.settings.targets.minimums[0]?.metric;
  if (target) return target;
  const metrics = new Set(report.plans.flatMap((p) => p.quality.map((q) => q.metric)));
  if (metrics.has('gsm8k') || metrics.size === 0) return 'gsm8k';
  return metrics.has('mc-avg') ? 'mc-avg' : ([...metrics][0] as string);
}

/** Contradictions between published figures of the metric that a report shows. */
export const contradictionsAbout = (report: PlanReport, metric: string): PlanReport['contradictions'] =>
  report.contradictions.filter((c) => c.id.startsWith(metric));

/** `62 % measured, 38 % roofline`: evidence of a step's estimate. */
export function shareLabel(d: DecodeFigures): string {
  const parts = Object.entries(d.evidenceShare ?? {}).filter(([, share]) => share >= 0.005);
  return parts.map(([evidence, share]) => `${Math.round(share * 100)} % ${evidence}`).join(', ');
}

/** `0.800`, `0.590–0.800` where tables differ, `unknown` where nothing is published. */
export function qualityLabel(p: Plan, metric: string, contextTokens = Infinity): string {
  const values = p.quality
    .filter((q) => q.metric === metric && (q.contextTokens ?? 0) <= contextTokens)
    .map((q) => q.value);
  if (values.length === 0) return 'unknown';
  const low = Math.min(...values).toFixed(3);
  const high = Math.max(...values).toFixed(3);
  return low === high ? low : `${low.replace(/0$/, '')}–${high.replace(/0$/, '')}`;
}

export const LIMIT_LABEL: Record<LimitedBy, string> = {
  'kv-cache': 'KV',
  workspace: 'work',
  'in-flight': 'state',
  weights: 'weights',
  'codec-parameters': 'codec',
  prefill: 'prefill',
};

/**
 * The rows of a short table: of each codec setting and eviction, the fastest path that reads the cache faithfully (as
 * the published figures assume) and saves its memory.
 */
export function shortList(plans: readonly Plan[]): Plan[] {
  const best = new Map<string, Plan>();
  for (const p of plans) {
    const key = `${p.id.split('/')[0]} ${JSON.stringify(p.eviction)}`;
    const known = best.get(key);
    if (!known || rank(p) > rank(known)) best.set(key, p);
  }
  return plans.filter((p) => [...best.values()].includes(p));
}

/** Orders paths of one codec: faithful and memory-saving ones first, then by speed, then by capacity. */
function rank(p: Plan): number {
  const faithful = p.marks.some((m) => m.code === 'unfaithful-post-hoc' || m.code === 'no-memory-saved') ? 0 : 1e12;
  return faithful + (shownDecode(p).tokensPerSecond?.estimate ?? 0) + p.maxBatch.exact * 1e-6;
}
