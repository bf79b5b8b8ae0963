/** Batch against time, rate and price, of the plans that an answer names. */
import type { DecodeFigures, Plan, PlanReport } from '../../plan/types.js';
import { timeLabel } from '../../plan/words/words.js';
import { formatCount, formatNumber } from '../../numbers/units.js';
import type { Sweep } from '../plan-json.js';
import { usdLabel } from '../plan-rows.js';
import { columns, right, type Column } from './text.js';

export function sweepText(report: PlanReport, sweeps: readonly Sweep[]): string {
  return sweeps
    .map(({ planId, points }) => {
      const plan = report.plans.find((p) => p.id === planId) as Plan;
      const spec: Column<DecodeFigures>[] = [
        right(' ', (d) => (d.batch === plan.knee?.batch ? '>' : ' ')),
        right('batch', (d) => String(d.batch)),
        right('ms/token', (d) => timeLabel(d.secondsPerStep)),
        right('tok/s', (d) => (d.tokensPerSecond ? formatCount(d.tokensPerSecond.estimate) : '–')),
        right('a user', (d) => (d.secondsPerStep ? formatNumber(1 / d.secondsPerStep.estimate) : '–')),
        ...(report.settings.usdPerHour === null ? [] : [right<DecodeFigures>('$/Mtok', usdLabel)]),
      ];
      return `${planId}, by batch (> the operating point)\n${columns(spec, points).join('\n')}\n`;
    })
    .join('\n');
}
