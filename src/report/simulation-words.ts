/** A simulation in words, for every printer. */
import { groups as groupBy } from 'd3-array';
import { mostlyOutside, testedText, UNTESTED } from '../plan/ask/tested.js';
import type { Limit } from '../serving/metrics.js';
import { usdPerSecond } from '../serving/price/usd.js';
import type { Metric, ReportedTargets, Run, RunFigures, SimulationReport } from '../serving/types.js';
import { present } from '../present.js';
import { counted, formatMilliseconds, formatNumber } from '../numbers/units.js';

export const LIMIT_WORDS: Readonly<Record<Limit | 'nothing', string>> = {
  'kv-blocks': 'KV blocks',
  'max-num-seqs': '--max-num-seqs',
  'token-budget': '--max-num-batched-tokens',
  transfer: 'transfers of the cache',
  nothing: 'nothing',
};

/** As it was asked: rounded, a target could look met that is not. */
const exactTime = (s: number): string =>
  s < 1 ? `${Number((s * 1e3).toPrecision(9))} ms` : `${Number(s.toPrecision(9))} s`;

export const targetWords = ({ targets }: { readonly targets: ReportedTargets }): string =>
  `TTFT ${exactTime(targets.ttftSeconds)} and TPOT ${exactTime(targets.tpotSeconds)} for ` +
  `${targets.percentile} % of the requests${defaultWords(targets)}`;

/** ` (the default --ttft and --tpot)`: times that nobody asked for are told from those of the question. */
const defaultWords = ({ defaults }: ReportedTargets): string =>
  defaults.length === 0 ? '' : ` (the default ${defaults.map((name) => `--${name}`).join(' and ')})`;

/** Values of which a percentile is not just the largest. */
const LEAST = { mean: 1, median: 1, p90: 10, p95: 20, p99: 100 } as const;

/** Milliseconds, or seconds with their unit; a dash where it is not known. */
export const millis = (ms: number | null | undefined): string =>
  ms === null || ms === undefined ? '–' : formatMilliseconds(ms / 1e3);

/** Milliseconds; null where too few values were counted to have such a percentile. */
export function shownOf(f: RunFigures, statistic: keyof typeof LEAST, metric: Metric): number | null {
  const few = f.few.includes(metric) && (statistic === 'p99' || f.completed < LEAST[statistic]);
  return few ? null : f[`${statistic}_${metric}_ms`];
}

/** Of all ends of a run: `12.3 (11–14)`; a dash where one is not known. @param unit milliseconds */
export function shownBetween(
  { low, estimate, high }: Pick<Run, 'low' | 'estimate' | 'high'>,
  statistic: keyof typeof LEAST,
  metric: Metric,
  unit = 1,
): string {
  const ends = [estimate, low, high].map((f) => shownOf(f, statistic, metric));
  if (ends.includes(null)) return '–';
  // A queue that moves slower may meet other requests: the estimate need not lie between the ends.
  const [middle, ...others] = ends.map((ms) => ms! / unit) as [number, number, number];
  const [least, most] = [Math.min(middle, ...others), Math.max(middle, ...others)];
  return `${formatNumber(middle)} (${formatNumber(least)}–${formatNumber(most)})`;
}

/** What few values have no percentiles of; null where all have theirs. */
export const fewWords = (figures: readonly RunFigures[]): string | null =>
  figures.some((f) => f.few.length > 0)
    ? 'a dash: of fewer than 10, 20 and 100 values p90, p95 and p99 would be the largest; simulate more requests ' +
      '(--requests)'
    : null;

/**
 * `published first tokens of vLLM 0.12 on h200, models without loops: 30 of 59 in the interval, …`; null for times
 * of a calibration, which `validate` judges.
 */
export function testedWords({ tested, device }: Pick<SimulationReport, 'tested' | 'device'>): string | null {
  if (device.stack === 'lla-sim') return null;
  const { 'first token': first, step } = tested;
  if (!first && !step) return UNTESTED;
  if (first && first === step) return testedText(first);
  return [
    first ? testedText(first) : 'no published first token judges these',
    // One sentence where both are of the same servers.
    step ? testedText(step, first?.on) : 'no published step judges these',
  ].join('; ');
}

/** Why nothing is sure, however slow the steps; null where the intervals held. */
export function unsureWords({ tested }: Pick<SimulationReport, 'tested'>): string | null {
  const kinds = mostlyOutside(tested);
  return kinds.length === 0
    ? null
    : `most published ${kinds.map((kind) => `${kind}s`).join(' and ')} lie outside their intervals`;
}

/** GPUs of all replicas. */
const gpusOf = ({ gpus, server }: SimulationReport): number => gpus * (server.replicas + server.prefillReplicas);

/** `2 replicas, 1 more prefills`; empty of one that does both. */
export function replicaWords({ replicas, prefillReplicas: prefill }: SimulationReport['server']): string {
  if (replicas === 1 && prefill === 0) return '';
  const more = prefill === 0 ? '' : `, ${prefill} more prefill${prefill === 1 ? 's' : ''}`;
  return `${counted(replicas, 'replica')}${more}`;
}

/** `4 × NVIDIA H200 SXM (2 replicas)`. */
export function machineWords(r: SimulationReport): string {
  const all = gpusOf(r);
  const replicas = replicaWords(r.server);
  return `${all > 1 ? `${all} × ` : ''}${r.device.name}${replicas === '' ? '' : ` (${replicas})`}`;
}

/** Requests that are refused miss the targets; where none has a second token a TPOT that is asked for is not known. */
const meets = (f: RunFigures, { percentile, defaults }: SimulationReport['targets']): boolean =>
  (f.p99_tpot_ms !== null || defaults.includes('tpot')) &&
  f.missedShare !== null &&
  f.missedShare <= 1 - percentile / 100 + 1e-9;

export const verdictWords = (run: Run, r: Pick<SimulationReport, 'targets' | 'tested'>): string =>
  `${verdict(run, r)}` +
  (run.rejected > 0 ? `; ${run.rejected} of ${run.completed + run.rejected} requests are refused as too long` : '');

/** What misses while the server fills counts for no target, and percentiles have it (serving/misses.ts). */
export const warmedUp = (
  { request_goodput: good, request_throughput: all }: RunFigures,
  targets: { percentile: number },
): string =>
  good >= (all * targets.percentile) / 100
    ? ''
    : '; the first seventh of the requests, while the server fills up, is not counted';

/** Said where percentiles of all requests meet targets that those after the warm-up miss. */
function lateWords(f: RunFigures, { ttftSeconds, tpotSeconds }: SimulationReport['targets']): string {
  const [ttft, tpot] = [f.p99_ttft_ms, f.p99_tpot_ms];
  const isBelow = ttft !== null && tpot !== null && ttft <= ttftSeconds * 1e3 && tpot <= tpotSeconds * 1e3;
  return isBelow && f.missedShare !== null
    ? `: after the warm-up ${formatNumber(100 * f.missedShare)} % of the requests were late`
    : '';
}

const verdict = (run: Run, { targets, tested }: Pick<SimulationReport, 'targets' | 'tested'>): string => {
  const unsure = unsureWords({ tested });
  return run.sure
    ? 'meets the targets, even if every step takes the slow end of its ' +
        `interval${unsure === null ? '' : `, but that is not sure: ${unsure}`}${warmedUp(run.high, targets)}`
    : meets(run.high, targets) && meets(run.estimate, targets)
      ? 'may meet the targets: this run does, at the slow end too, but ' +
        `${run.completed} request${run.completed === 1 ? ' does' : 's do'} not make sure that others do`
      : meets(run.estimate, targets)
        ? 'meets the targets by the estimate, but not if every step takes the slow end of its interval'
        : run.completed > 0 && run.estimate.p99_tpot_ms === null && !targets.defaults.includes('tpot')
          ? 'does not meet the targets: no request has a second token, so TPOT is not known'
          : `misses the targets${run.rejected > 0 ? '' : lateWords(run.estimate, targets)}`;
};

/** In a run that is long beside its requests nearly as many a second are answered as come. */
const ANSWERED = 0.9;

export function limitWords(
  run: Run,
  { workload: { requestsPerSecond: rate, maxConcurrency: most }, server, targets }: SimulationReport,
): string {
  const answered = run.estimate.request_throughput;
  const taken = run.completed / (run.completed + run.rejected);
  if (most !== null && rate !== null && answered < ANSWERED * rate)
    return (
      `the client keeps at most ${most} requests open: of ${formatNumber(rate)} a second ${formatNumber(answered)} ` +
      'were answered, and no latency counts the wait before'
    );
  const { p99_ttft_ms: ttft, p99_queue_ms: queue } = run.estimate;
  const isLate = ttft !== null && queue !== null && ttft - queue > targets.ttftSeconds * 1e3;
  if (run.limitedBy === 'nothing' && isLate)
    return (
      'not overloaded: few requests wait to begin, but prompts take longer than --ttft; all that run share ' +
      `${server.maxNumBatchedTokens} tokens an iteration (--max-num-batched-tokens)`
    );
  if (run.limitedBy === 'nothing')
    return run.sure || rate === null || answered >= ANSWERED * taken * rate
      ? 'not overloaded: requests hardly wait'
      : `requests hardly wait in this run, but it is short: ${formatNumber(rate)} a second came and ` +
          `${formatNumber(answered)} were answered; more --requests, or --find-rate, say whether the rate lasts`;
  return `limited by ${LIMIT_WORDS[run.limitedBy]} (${formatNumber(100 * run.waiting[run.limitedBy])} % of waiting)`;
}

/**
 * What the simulation found, for a first page: whether the deployed plan meets the targets, how many replicas do, and
 * what those cost.
 */
export function findingWords(r: SimulationReport, usdPerHour: number | null): string | null {
  const run = r.runs[0];
  if (!run) return null;
  const { requestsPerSecond: rate, label } = r.workload;
  const asked = rate === null ? label : `${formatNumber(rate)} requests a second`;
  const words = present([
    jobWords(r, run),
    isJudged(r) && verdictWords(run, r),
    tailWords(r, run),
    isJudged(r) && `targets: ${targetWords(r)}`,
  ]);
  return (
    `${run.id} by simulation, ${asked} on ${machineWords(r)}: ${words.join('; ')}.` + needWords(r, run, usdPerHour)
  );
}

/** A job whose requests are all there at once has no targets but those that are asked for. */
export const isJudged = ({ workload, targets }: SimulationReport): boolean =>
  !workload.atOnce || targets.defaults.length < 2;

const TAILS = ['p99', 'p95', 'p90', 'median'] as const;

/** `p99 TTFT 105 (58–749) ms`: of the percentile that is asked for; of few requests, of the highest that they have. */
export function tailWords(r: SimulationReport, run: Run): string {
  const within = TAILS.filter((p) => p === 'median' || Number(p.slice(1)) <= r.targets.percentile);
  const tail = within.find((p) => shownBetween(run, p, 'ttft') !== '–') ?? 'median';
  const metrics = isJudged(r) ? (['ttft', 'tpot'] as const) : (['tpot'] as const);
  return metrics.map((m) => `${tail} ${m.toUpperCase()} ${shownBetween(run, tail, m)} ms`).join(', ');
}

/** GPUs of so many replicas like those that were simulated. */
const gpusFor = (r: SimulationReport, replicas: number): number => (replicas * gpusOf(r)) / r.server.replicas;

/**
 * Replicas that the rate needs at the slow end, by the estimate where no number does there, and their GPUs; where no
 * rate was searched, those that were simulated.
 */
export function neededOf(r: SimulationReport): { readonly gpus: number; readonly replicas: number } {
  const found = r.candidates?.find((c) => c.id === r.runs[0]?.id)?.replicasFor;
  const replicas = found ? (found.replicas.high ?? found.replicas.estimate) : r.server.replicas;
  return { gpus: gpusFor(r, replicas), replicas };
}

/** Tokens of the longest sequence that the server takes and a run's cache holds. */
export const longestTokens = ({ server: s, runs }: SimulationReport): number =>
  Math.min(s.maxModelLen, ...(runs.length === 0 ? [] : [s.blockTokens * Math.max(...runs.map((run) => run.kvBlocks))]));

/** `, $1.03 per million output tokens`: of all GPUs that were simulated, as busy as they were. */
export const priceWords = ({ usdPerMillionOutputTokens: usd }: Run): string =>
  usd === null ? '' : `, $${formatNumber(usd.estimate)} per million output tokens`;

/**
 * `1000 requests are answered within 26.2 (22–40) seconds, $0.4 in all`, of requests that are there at once; null of
 * others.
 */
export function jobWords(r: SimulationReport, { low, estimate, high, completed, rejected }: Run): string | null {
  if (!r.workload.atOnce || completed === 0) return null;
  const unit = UNITS.find(([, least]) => estimate.duration >= least)!;
  const [middle, fast, slow] = [estimate, low, high].map((f) => formatNumber(f.duration / unit[2])) as string[];
  const usd = usdPerSecond(r, r.server);
  return (
    `${rejected > 0 ? `${completed} of ${counted(completed + rejected, 'request')}` : counted(completed, 'request')} ` +
    `${completed === 1 ? 'is' : 'are'} answered within ${middle} (${fast}–${slow}) ` +
    `${unit[0]}${usd === null ? '' : `, $${formatNumber(usd * estimate.duration)} in all`}`
  );
}

/** Name, the least time that is shown in it, seconds of one. */
const UNITS = [
  ['hours', 7200, 3600],
  ['minutes', 120, 60],
  ['seconds', 0, 1],
] as const;

/** Replicas that the workload needs, and their price. */
function needWords(r: SimulationReport, run: Run, usdPerHour: number | null): string {
  const found = r.candidates?.find((c) => c.id === run.id);
  if (!found) return '';
  const { replicasFor } = found;
  if (replicasFor === null) return ' No number of replicas meets them.';
  const { estimate, high } = replicasFor.replicas;
  const usd = (replicas: number): string =>
    usdPerHour === null ? '' : `, $${formatNumber(usdPerHour * gpusFor(r, replicas))} an hour`;
  const count = (replicas: number): string => `${counted(replicas, 'replica')}${usd(replicas)}`;
  const slow =
    high === null
      ? '; at the slow end no number does'
      : high === estimate
        ? ', at the slow end too'
        : `; at the slow end ${count(high)}`;
  return ` It needs ${count(estimate)}${slow}.`;
}

/** Those that meet no rate, a sentence a reason. @param nameOf of a row */
export function refusedWords<T extends { readonly refused: string | null }>(
  rows: readonly T[],
  nameOf: (row: T) => string,
): string[] {
  return groupBy(rows, (row) => row.refused).flatMap(([reason, own]) =>
    reason === null ? [] : `No rate meets the targets: ${own.map(nameOf).join(', ')}: ${reason}.`,
  );
}
