/** What the plans of a decision keep of the uncompressed model's scores, task by task. */
import type { Plugin } from 'chart.js';
import { best } from '../../numbers/best.js';
import { lossTable, type LossTable } from '../decision.js';
import { shareText } from '../text/text.js';
import type { View } from '../view.js';
import { layer, pixelOf } from './marks.js';
import { picture, type Picture } from './picture.js';
import { axis, colourOf, markStyle, type Theme } from './theme.js';

const MOST_TASKS = 12;

export const qualityTasks = (view: View): LossTable | null => lossTable(view.report, MOST_TASKS);

export function qualityByTask(view: View): Picture | null {
  const table = qualityTasks(view);
  if (!table) return null;
  const { report } = view;
  const { keep } = report.settings;
  const here = report.fidelity;
  const evidence = here ? 'measured-here' : 'published';
  const worst = table.plans.map((plan, i) => {
    const scores = table.rows.flatMap((r) => r.scores[i] ?? []);
    const lowest = best(scores, (s) => -s.share)!;
    return `${plan}: ${lowest.metric} ${shareText(lowest.share)}`;
  });
  return picture({
    id: 'quality-by-task',
    title: 'Which tasks lose how much?',
    subtitle: here
      ? `${report.model.name}, low end of each 95 % interval; 100 %: its uncompressed cache; line: the share that a ` +
        'recommended plan keeps'
      : `${report.model.name}, published scores that count at this context; 100 %: the uncompressed model in the ` +
        'same table; line: the share that a recommended plan keeps',
    source: here ? here.file : 'the published tables',
    evidence,
    summary:
      `Worst by plan: ${worst.join('; ')}. A task without a mark was not ${here ? 'measured' : 'published'} for ` +
      'that plan.',
    draw: (theme) => {
      const shares = table.rows.flatMap((r) => r.scores.flatMap((s) => (s ? [s.share * 100] : [])));
      const x = axis(theme, 'share of the uncompressed model’s score, %');
      const y = axis(theme, '');
      return {
        type: 'line',
        data: {
          labels: table.rows.map((r) => r.task),
          datasets: table.plans.map((plan, i) => ({
            label: plan,
            data: table.rows.map((r) => (r.scores[i] ? r.scores[i].share * 100 : null)) as number[],
            showLine: false,
            ...markStyle(i, colourOf(theme, i + 1), 7, 2),
          })),
        },
        options: { indexAxis: 'y' },
        scales: {
          x: {
            ...x,
            min: Math.max(0, Math.floor((Math.min(keep * 100, ...shares) - 3) / 5) * 5),
            // Room for marks at the end, which is no round value: it has no tick.
            max: Math.max(102, Math.ceil(Math.max(...shares) + 2)),
            ticks: { ...x.ticks, stepSize: 5, includeBounds: false },
          },
          y: { ...y, type: 'category', offset: true, ticks: { ...y.ticks, color: theme.ink, autoSkip: false } },
        },
        plugins: [limits(theme, [100, keep * 100])],
      };
    },
  });
}

/** Vertical lines: the uncompressed model, and what must be kept. */
function limits(theme: Theme, at: readonly number[]): Plugin {
  return layer('limits', 'beforeDatasetsDraw', (ctx, chart) => {
    const { chartArea } = chart;
    ctx.strokeStyle = theme.muted;
    at.forEach((value, i) => {
      const x = pixelOf(chart, 'x', value);
      ctx.lineWidth = i === 0 ? 1 : 2;
      ctx.setLineDash(i === 0 ? [] : [6, 4]);
      ctx.beginPath();
      ctx.moveTo(x, chartArea.top);
      ctx.lineTo(x, chartArea.bottom);
      ctx.stroke();
    });
  });
}
