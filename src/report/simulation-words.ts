/** A simulation in words, for every printer. */
import type { Limit } from '../serving/metrics.js';
import type { Run, RunFigures, SimulationReport } from '../serving/types.js';
import { formatNumber } from '../numbers/units.js';

export const LIMIT_WORDS: Readonly<Record<Limit | 'nothing', string>> = {
  'kv-blocks': 'KV blocks',
  'max-num-seqs': '--max-num-seqs',
  'token-budget': '--max-num-batched-tokens',
  nothing: 'nothing',
};

const seconds = (s: number): string => (s < 1 ? `${formatNumber(s * 1e3)} ms` : `${formatNumber(s)} s`);

export const targetWords = ({ targets }: SimulationReport): string =>
  `TTFT ${seconds(targets.ttftSeconds)} and TPOT ${seconds(targets.tpotSeconds)} for ${formatNumber(targets.percentile)} % of the requests`;

/** `12.3 (11–14)`; a dash where one is not known. */
export const knownBetween = (low: number | null, estimate: number | null, high: number | null, unit = 1): string =>
  low === null || estimate === null || high === null ? '–' : between(low / unit, estimate / unit, high / unit);

/** A queue that moves slower may meet other requests: the estimate need not lie between the ends. */
const between = (...runs: [low: number, estimate: number, high: number]): string =>
  `${formatNumber(runs[1])} (${formatNumber(Math.min(...runs))}–${formatNumber(Math.max(...runs))})`;

/** GPUs of all replicas. */
const gpusOf = ({ gpus, server }: SimulationReport): number => gpus * (server.replicas + server.prefillReplicas);

/** `2 replicas, 1 more prefills`; empty of one that does both. */
export function replicaWords({ replicas, prefillReplicas: prefill }: SimulationReport['server']): string {
  if (replicas === 1 && prefill === 0) return '';
  const more = prefill === 0 ? '' : `, ${prefill} more prefill${prefill === 1 ? 's' : ''}`;
  return `${replicas} replica${replicas === 1 ? '' : 's'}${more}`;
}

/** `4 × NVIDIA H200 SXM (2 replicas)`. */
export function machineWords(r: SimulationReport): string {
  const all = gpusOf(r);
  const replicas = replicaWords(r.server);
  return `${all > 1 ? `${all} × ` : ''}${r.device.name}${replicas === '' ? '' : ` (${replicas})`}`;
}

/** Requests that are refused miss the targets; of no request with a second token TPOT is not known. */
const meets = (f: RunFigures, { percentile }: SimulationReport['targets']): boolean =>
  f.p99_tpot_ms !== null && f.missedShare !== null && f.missedShare <= 1 - percentile / 100 + 1e-9;

export const verdictWords = (run: Run, targets: SimulationReport['targets']): string =>
  `${verdict(run, targets)}${run.rejected > 0 ? `; ${run.rejected} of ${run.completed + run.rejected} requests are refused as too long` : ''}`;

const verdict = (run: Run, targets: SimulationReport['targets']): string =>
  run.sure
    ? 'meets the targets, even if every step takes the slow end of its interval'
    : meets(run.high, targets)
      ? `meets the targets in this run, at the slow end too, but ${run.completed} requests do not make sure that others do`
      : meets(run.estimate, targets)
        ? 'meets the targets by the estimate, but not if every step takes the slow end of its interval'
        : run.completed > 0 && run.estimate.p99_tpot_ms === null
          ? 'does not meet the targets: no request has a second token, so TPOT is not known'
          : 'misses the targets';

export function limitWords(run: Run): string {
  if (run.limitedBy === 'nothing') return 'not overloaded: requests hardly wait';
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
  const ms = (key: 'p99_ttft_ms' | 'p99_tpot_ms'): string =>
    `${knownBetween(run.low[key], run.estimate[key], run.high[key])} ms`;
  const asked = rate === null ? label : `${formatNumber(rate)} requests a second`;
  return `${run.id} by simulation, ${asked} on ${machineWords(r)}: ${verdictWords(run, r.targets)}; p99 TTFT ${ms('p99_ttft_ms')}, p99 TPOT ${ms('p99_tpot_ms')}; targets: ${targetWords(r)}.${needWords(r, run, usdPerHour)}`;
}

/** GPUs of so many replicas like those that were simulated. */
const gpusFor = (r: SimulationReport, replicas: number): number => (replicas * gpusOf(r)) / r.server.replicas;

/** Replicas that the rate needs by the estimate, and their GPUs; where no rate was searched, those that were simulated. */
export function neededOf(r: SimulationReport): { readonly gpus: number; readonly replicas: number } {
  const found = r.candidates?.find((c) => c.id === r.runs[0]?.id)?.replicasFor;
  const replicas = found ? found.replicas.estimate : r.server.replicas;
  return { gpus: gpusFor(r, replicas), replicas };
}

/** Replicas that the workload needs, and their price. */
function needWords(r: SimulationReport, run: Run, usdPerHour: number | null): string {
  const found = r.candidates?.find((c) => c.id === run.id);
  if (!found) return '';
  const { replicasFor } = found;
  if (replicasFor === null) return ' No number of replicas meets them.';
  const { estimate, high } = replicasFor.replicas;
  const usd = (replicas: number): string =>
    usdPerHour === null ? '' : `, $${formatNumber(usdPerHour * gpusFor(r, replicas))} an hour`;
  const count = (replicas: number): string => `${replicas} replica${replicas === 1 ? '' : 's'}${usd(replicas)}`;
  const slow =
    high === null
      ? '; at the slow end no number does'
      : high === estimate
        ? ', at the slow end too'
        : `; at the slow end ${count(high)}`;
  return ` It needs ${count(estimate)}${slow}.`;
}
