/** How fast each user is served against how many there are: the picture of the decision. */
import type { Plugin } from 'chart.js';
import { isEstimate, weaker, type Evidence } from '../../cost/evidence.js';
import { priceStep } from '../../cost/latency.js';
import { configurationOf } from '../../plan/evaluate/evaluate.js';
import { planName, shownDecode } from '../../plan/words/words.js';
import { counted, formatNumber, formatTokens } from '../../numbers/units.js';
import { drawnPlans } from '../decision.js';
import { timeSource, type View } from '../view.js';
import { layer, notes, pixelOf } from './marks.js';
import { devicesOf, picture, type Picture } from './picture.js';
import { countScale, numberScale, spread } from './scales.js';
import { bandedLine, colourOf, faded, type BandLine, type Point, type Theme } from './theme.js';

/** Tokens a second for each user, by users. Ends at the largest batch. */
interface SpeedLine extends BandLine {
  /** Where the plan is run. */
  readonly at: Point;
}

/** Points a line: enough for a smooth one. */
const POINTS = 14;

/** Batches from 1 to the largest, evenly on a logarithmic axis, the operating one among them. */
function batches(most: number, operating: number): number[] {
  const all = Array.from({ length: POINTS }, (_, i) => Math.round(most ** (i / (POINTS - 1))));
  return [...new Set([...all, operating])].sort((a, b) => a - b);
}

export function speedLines(view: View): SpeedLine[] {
  const { request, report } = view;
  const { pricer } = request;
  if (!pricer) return [];
  return drawnPlans(report).flatMap((plan): SpeedLine[] => {
    const candidate = view.all.find((e) => e.plan.id === plan.id)?.candidate;
    const d = shownDecode(plan);
    if (!candidate || !d.secondsPerStep || plan.maxBatch.exact < 1) return [];
    const c = configurationOf(request, candidate);
    const points = batches(plan.maxBatch.exact, d.batch).map((x) => {
      const { estimate, low, high } = priceStep(c, pricer, x, request.contextTokens);
      return { x, y: 1 / estimate, low: 1 / high, high: 1 / low };
    });
    const at = { x: d.batch, y: 1 / d.secondsPerStep.estimate };
    // The word is that of the plan's row, which the mark stands for.
    return [{ id: plan.id, label: planName(plan), evidence: d.evidence ?? 'roofline', points, at }];
  });
}

const users = (n: number): string => counted(n, 'user');

export function usersAgainstSpeed(view: View): Picture | null {
  const lines = speedLines(view);
  if (lines.length === 0) return null;
  const { report } = view;
  const evidence = lines.reduce<Evidence>((a, l) => weaker(a, l.evidence), 'measured');
  const { secondsPerToken } = report.settings.targets;
  const wanted = { users: report.settings.batch, speed: secondsPerToken === null ? null : 1 / secondsPerToken };
  const gpus = report.settings.gpus;
  return picture({
    id: 'users-against-speed',
    title: `How many users does ${gpus > 1 ? 'the group of GPUs' : 'one GPU'} serve, and how fast?`,
    subtitle:
      `${report.model.name} on ${devicesOf(report)}, ` +
      `${formatTokens(report.contextTokens)} tokens each; bands: 90 % intervals; lines end where memory ` +
      `does${wanted.speed === null ? '' : '; shaded: the target'}`,
    evidence,
    source: timeSource(view),
    summary:
      lines
        .map(
          (l) =>
            `${l.label}: ${users(l.at.x)} at ${formatNumber(l.at.y)} tokens a second each, at most ` +
            `${users(l.points.at(-1)?.x ?? 0)}`,
        )
        .join('; ') + `.${isEstimate(evidence) ? ' Dashed: kernels that nobody has measured.' : ''}`,
    draw: (theme) => {
      const most = Math.max(...lines.map((l) => l.points.at(-1)?.x ?? 1));
      return {
        type: 'line',
        data: {
          datasets: lines.flatMap((line, i) =>
            bandedLine(theme, line, i, { pointRadius: line.points.map((p) => (p.x === line.at.x ? 6 : 0)) }),
          ),
        },
        scales: {
          x: countScale(theme, 'users served at once (sequences, log scale)', { min: 1, max: most * 1.1 }),
          y: numberScale(
            theme,
            'tok/s for each user (log)',
            spread([...lines.flatMap((l) => l.points.flatMap((p) => [p.low, p.high])), wanted.speed ?? 0], 1.15),
          ),
        },
        plugins: [
          region(theme, wanted),
          notes(
            theme,
            lines.map(({ at }) => {
              const text = `${users(at.x)}: ${formatNumber(at.y)} tok/s each`;
              return { ...at, text, dot: true, above: true };
            }),
          ),
        ],
      };
    },
  });
}

/** Shades where targets are met: fast enough for each, and many enough. */
function region(theme: Theme, wanted: { readonly users: number | null; readonly speed: number | null }): Plugin {
  return layer('region', 'beforeDatasetsDraw', (ctx, chart) => {
    const { chartArea } = chart;
    if (wanted.speed === null) return;
    const bottom = Math.min(chartArea.bottom, pixelOf(chart, 'y', wanted.speed));
    const left = wanted.users === null ? chartArea.left : Math.max(chartArea.left, pixelOf(chart, 'x', wanted.users));
    ctx.fillStyle = faded(colourOf(theme, 2), 0.1);
    ctx.fillRect(left, chartArea.top, chartArea.right - left, bottom - chartArea.top);
    ctx.strokeStyle = colourOf(theme, 2);
    ctx.lineWidth = 1.5;
    ctx.beginPath();
    ctx.moveTo(left, bottom);
    ctx.lineTo(chartArea.right, bottom);
    ctx.stroke();
  });
}
