/** Batch against time, rate and price, of the plans that an answer names. */
import type { DecodeFigures, Plan, PlanReport } from '../../plan/types.js';
import { timeLabel } from '../../plan/words/words.js';
import { formatCount, formatNumber } from '../../numbers/units.js';
import type { Sweep } from '../plan-json.js';
import { columns, type Column } from './text.js';

export function sweepText(report: PlanReport, sweeps: readonly Sweep[]): string {
  return sweeps
    .map(({ planId, points }) => {
      const plan = report.plans.find((p) => p.id === planId) as Plan;
      const column = (title: string, cell: (d: DecodeFigures) => string): Column<DecodeFigures> => ({
        title,
        align: 'right',
        cell,
      });
      const spec = [
        column(' ', (d) => (d.batch === plan.knee?.batch ? '>' : ' ')),
        column('batch', (d) => String(d.batch)),
        column('ms/token', (d) => timeLabel(d.secondsPerStep)),
        column('tok/s', (d) => (d.tokensPerSecond ? formatCount(d.tokensPerSecond.estimate) : '–')),
        column('a user', (d) => (d.secondsPerStep ? formatNumber(1 / d.secondsPerStep.estimate) : '–')),
        ...(report.settings.usdPerHour === null
          ? []
          : [column('$/Mtok', (d) => (d.usdPerMillionTokens ? formatNumber(d.usdPerMillionTokens.estimate) : '–'))]),
      ];
      return `${planId}, by batch (> the operating point)\n${columns(spec, points).join('\n')}\n`;
    })
    .join('\n');
}
