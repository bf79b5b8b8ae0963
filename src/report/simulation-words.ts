/** A simulation in words, for every printer. */
import type { Limit } from '../serving/metrics.js';
import type { Run, RunFigures, SimulationReport } from '../serving/types.js';
import { formatNumber } from '../units.js';

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

const between = (low: number, estimate: number, high: number): string =>
  `${formatNumber(estimate)} (${formatNumber(low)}–${formatNumber(high)})`;

/** Requests that are refused miss the targets; of no request with a second token TPOT is not known. */
const meets = (run: Run, f: RunFigures, targets: SimulationReport['targets']): boolean =>
  f.p99_tpot_ms !== null &&
  (f.request_goodput / f.request_throughput) * f.completed >=
    (targets.percentile / 100) * (f.completed + run.rejected) - 1e-9;

export const verdictWords = (run: Run, targets: SimulationReport['targets']): string =>
  `${verdict(run, targets)}${run.rejected > 0 ? `; ${run.rejected} of ${run.completed + run.rejected} requests are refused as too long` : ''}`;

const verdict = (run: Run, targets: SimulationReport['targets']): string =>
  meets(run, run.high, targets)
    ? 'meets the targets, at the slow end of the prices too'
    : meets(run, run.estimate, targets)
      ? 'meets the targets by the estimate, not at the slow end'
      : run.completed > 0 && run.estimate.p99_tpot_ms === null
        ? 'does not meet the targets: no request has a second token, so TPOT is not known'
        : 'misses the targets';

export function limitWords(run: Run): string {
  if (run.limitedBy === 'nothing') return 'the time of a step: requests hardly wait';
  return `${LIMIT_WORDS[run.limitedBy]} (${formatNumber(100 * run.waiting[run.limitedBy])} % of waiting)`;
}
