/** Predicted step times against those that the decoder took, where a validation is at hand. */
import { weaker, type Evidence } from '../../cost/evidence.js';
import { median } from '../../numbers/statistics.js';
import { formatNumber } from '../../numbers/units.js';
import type { View } from '../view.js';
import { whiskers } from './marks.js';
import { picture, type Picture } from './picture.js';
import { numberScale, spread } from './scales.js';
import { colourOf, evidenceStyle, faded, lineStyle, markStyle } from './theme.js';

export function predictedAgainstMeasured({ validation }: View): Picture | null {
  const steps = validation?.latency?.steps ?? [];
  if (!validation?.latency || steps.length === 0) return null;
  const kinds = [...new Set(steps.map((s) => s.evidence))];
  const evidence = kinds.reduce<Evidence>(weaker, 'measured');
  const errors = steps.map((s) => Math.abs(s.predicted.estimate / s.measuredSeconds - 1));
  const inside = steps.filter(
    (s) => s.predicted.low <= s.measuredSeconds && s.measuredSeconds <= s.predicted.high,
  ).length;
  return picture({
    id: 'predicted-against-measured',
    title: 'Predicted against measured steps',
    subtitle:
      `${validation.latency.model} on ${validation.device.description}; milliseconds a step; whiskers: the ` +
      'predicted interval',
    source: validation.file,
    evidence,
    summary:
      `${steps.length} decode steps: the prediction is off by ${formatNumber(median(errors) * 100)} % in the ` +
      `median, ${inside} of ${steps.length} measured times lie in their ` +
      `interval.${validation.device.software ? ' A software adapter: this says nothing about a GPU.' : ''}`,
    draw: (theme) => {
      const range = spread(
        steps.flatMap((s) => [s.measuredSeconds, s.predicted.low, s.predicted.high]).map((s) => s * 1e3),
        1.2,
      );
      return {
        type: 'scatter',
        data: {
          datasets: [
            {
              label: 'equal',
              data: [range.min, range.max].map((x) => ({ x, y: x })),
              showLine: true,
              ...lineStyle(theme.ink, 1.5),
            },
            ...kinds.map((kind, i) => {
              const { pointBackgroundColor: fill } = evidenceStyle(kind, colourOf(theme, i), theme.paper);
              return {
                label: kind,
                data: steps
                  .filter((s) => s.evidence === kind)
                  .map((s) => ({ x: s.measuredSeconds * 1e3, y: s.predicted.estimate * 1e3 })),
                ...markStyle(i, colourOf(theme, i), 5, 1.5, fill),
              };
            }),
          ],
        },
        scales: {
          x: numberScale(theme, 'measured, ms (log scale)', range),
          y: numberScale(theme, 'predicted, ms (log scale)', range),
        },
        plugins: [
          whiskers(
            steps.map((s) => ({
              x: s.measuredSeconds * 1e3,
              low: s.predicted.low * 1e3,
              high: s.predicted.high * 1e3,
              colour: faded(colourOf(theme, kinds.indexOf(s.evidence)), 0.45),
            })),
          ),
        ],
      };
    },
  });
}
