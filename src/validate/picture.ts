/** The scatter of predicted against measured step times. */
import { frame } from '../report/pictures/marks.js';
import { EVIDENCE_WORDS, type Picture } from '../report/pictures/picture.js';
import { numberScale, spread } from '../report/pictures/scales.js';
import { colourOf, common, faded, markOf } from '../report/pictures/theme.js';
import type { StepRow } from './latency.js';
import { percent, type ValidationReport } from './report.js';

/** Steps by codec and path. */
function series(steps: readonly StepRow[]): Map<string, StepRow[]> {
  const byId = new Map<string, StepRow[]>();
  for (const step of steps) byId.set(step.id, [...(byId.get(step.id) ?? []), step]);
  return byId;
}

const milliseconds = (seconds: number): number => seconds * 1e3;

/** Null where no step was measured. */
export function scatterPicture(r: ValidationReport): Picture | null {
  const steps = r.latency?.steps ?? [];
  if (!r.latency?.summary || steps.length === 0) return null;
  const { summary, model } = r.latency;
  const title = 'Decode steps: predicted against measured';
  const subtitle = `${model} on ${r.device.description}; ${summary.count} steps, bars are 90 % intervals`;
  const source = r.calibration?.file ?? '';
  return {
    id: 'predicted-against-measured',
    title,
    subtitle,
    source,
    evidence: 'measured',
    summary:
      `Median error ${percent(summary.medianError)}, 90th percentile ${percent(summary.p90Error)}, ` +
      `${percent(summary.coverage)} of the measured times lie inside their interval.`,
    chart: (theme) => {
      const words = { title, subtitle, source, evidence: EVIDENCE_WORDS.measured };
      const range = spread(
        steps.flatMap((s) => [s.measuredSeconds, s.predicted.low, s.predicted.high].map(milliseconds)),
        1.3,
      );
      const line = [range.min, range.max].map((v) => ({ x: v, y: v }));
      const interval = (s: StepRow, i: number) => ({
        label: '',
        data: [s.predicted.low, s.predicted.high].map((y) => ({
          x: milliseconds(s.measuredSeconds),
          y: milliseconds(y),
        })),
        showLine: true,
        borderColor: faded(colourOf(theme, i), 0.5),
        borderWidth: 1.5,
        pointRadius: 0,
      });
      return {
        type: 'scatter',
        data: {
          datasets: [
            {
              label: 'equal',
              data: line,
              showLine: true,
              borderColor: theme.muted,
              borderWidth: 1.5,
              borderDash: [6, 4],
              pointRadius: 0,
              pointStyle: 'line' as const,
            },
            ...[...series(steps)].flatMap(([label, rows], i) => [
              {
                label,
                data: rows.map((s) => ({ x: milliseconds(s.measuredSeconds), y: milliseconds(s.predicted.estimate) })),
                pointStyle: markOf(i),
                pointRadius: 5,
                pointBorderWidth: 1.5,
                borderColor: colourOf(theme, i),
                backgroundColor: faded(colourOf(theme, i), 0.7),
              },
              ...rows.map((s) => interval(s, i)),
            ]),
          ],
        },
        options: {
          ...common(theme, words),
          scales: {
            x: numberScale(theme, 'measured, ms a step (log scale)', range),
            y: numberScale(theme, 'predicted, ms a step (log scale)', range),
          },
        },
        plugins: [frame(theme, words)],
      };
    },
  };
}
