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

/** `12.3 (11–14)`. */
export const between = (low: number, estimate: number, high: number): string =>
  `${formatNumber(estimate)} (${formatNumber(low)}–${formatNumber(high)})`;

const meets = (run: Run, f: RunFigures, targets: SimulationReport['targets']): boolean =>
  f.completed > 0 &&
  run.rejected === 0 &&
  f.request_goodput >= (targets.percentile / 100) * f.request_throughput - 1e-12;

export const verdictWords = (run: Run, targets: SimulationReport['targets']): string =>
  meets(run, run.high, targets)
    ? 'meets the targets, at the slow end of the prices too'
    : meets(run, run.estimate, targets)
      ? 'meets the targets by the estimate, not at the slow end'
      : 'misses the targets';

export function limitWords(run: Run): string {
  if (run.limitedBy === 'nothing') return 'the time of a step: requests hardly wait';
  return `${LIMIT_WORDS[run.limitedBy]} (${formatNumber(100 * run.waiting[run.limitedBy])} % of waiting)`;
}
