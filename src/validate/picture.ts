/** The scatter of predicted against measured step times. */
import { groups as groupBy } from 'd3-array';
import { picture, type Picture } from '../report/pictures/picture.js';
import { numberScale, spread } from '../report/pictures/scales.js';
import { colourOf, faded, lineStyle, markStyle } from '../report/pictures/theme.js';
import type { StepRow } from './latency.js';
import { percent, type ValidationReport } from './report.js';

const milliseconds = (seconds: number): number => seconds * 1e3;

/** Null where no step was measured. */
export function scatterPicture(r: ValidationReport): Picture | null {
  const steps = r.latency?.steps ?? [];
  if (!r.latency?.summary || steps.length === 0) return null;
  const { summary, model } = r.latency;
  return picture({
    id: 'predicted-against-measured',
    title: 'Decode steps: predicted against measured',
    subtitle: `${model} on ${r.device.description}; ${summary.count} steps, bars are 90 % intervals`,
    source: r.calibration?.file ?? '',
    evidence: 'measured',
    summary:
      `Median error ${percent(summary.medianError)}, 90th percentile ${percent(summary.p90Error)}, ` +
      `${percent(summary.coverage)} of the measured times lie inside their interval.`,
    draw: (theme) => {
      const range = spread(
        steps.flatMap((s) => [s.measuredSeconds, s.predicted.low, s.predicted.high].map(milliseconds)),
        1.3,
      );
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
              data: [range.min, range.max].map((v) => ({ x: v, y: v })),
              showLine: true,
              ...lineStyle(theme.muted, 1.5),
              borderDash: [6, 4],
            },
            ...groupBy(steps, ({ id }) => id).flatMap(([label, rows], i) => [
              {
                label,
                data: rows.map((s) => ({ x: milliseconds(s.measuredSeconds), y: milliseconds(s.predicted.estimate) })),
                ...markStyle(i, colourOf(theme, i), 5, 1.5, faded(colourOf(theme, i), 0.7)),
              },
              ...rows.map((s) => interval(s, i)),
            ]),
          ],
        },
        scales: {
          x: numberScale(theme, 'measured, ms a step (log scale)', range),
          y: numberScale(theme, 'predicted, ms a step (log scale)', range),
        },
      };
    },
  });
}
