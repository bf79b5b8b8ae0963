/** Throughput against published quality: what is given up for speed, and which plans nothing beats. */
import { pathSpec } from '../../codecs/paths.js';
import { isUncompressed } from '../../codecs/registry.js';
import { isEstimate, weaker, type Evidence } from '../../cost/evidence.js';
import type { Plan } from '../../plan/types.js';
import { formatCount, formatTokens } from '../../units.js';
import { pathLabel } from '../../plan/names.js';
import { representative, timeSource, type View } from '../view.js';
import { frame, notes, whiskers } from './marks.js';
import { EVIDENCE_WORDS, type Picture } from './picture.js';
import { countScale, spread } from './scales.js';
import { axis, colourOf, common, evidenceStyle, faded, markOf } from './theme.js';

export interface QualityPoint {
  readonly id: string;
  readonly kind: Plan['codec']['kind'];
  readonly label: string;
  /** Smallest published share of the uncompressed model's value, percent. */
  readonly x: number;
  /** Tokens per second at the largest batch (or the batch asked for). */
  readonly y: number;
  readonly low: number;
  readonly high: number;
  readonly evidence: Evidence;
  /** Nothing is both faster and better. */
  readonly front: boolean;
}

/**
 * Plans of which both speed and quality are known; of each codec setting the fastest path that the figures hold for and
 * that saves its memory.
 */
export function qualityPoints(view: View): QualityPoint[] {
  const best = new Map<string, Plan>();
  for (const { plan } of view.all) {
    const rate = plan.decode.tokensPerSecond;
    if (!rate || !plan.qualityKept || plan.maxBatch.exact < 1 || pathSpec(plan.path).restores) continue;
    const key = `${representative(plan)} ${plan.qualityKept.share}`;
    const known = best.get(key);
    if (!known || rate.estimate > (known.decode.tokensPerSecond?.estimate ?? 0)) best.set(key, plan);
  }
  const points = [...best.values()].map((p) => {
    const rate = p.decode.tokensPerSecond as NonNullable<typeof p.decode.tokensPerSecond>;
    const evidence: Evidence = p.decode.evidence ?? 'roofline';
    const label = isUncompressed(p.codec) ? 'full cache' : `${representative(p)} ${pathLabel(p)}`;
    return {
      id: p.id,
      kind: p.codec.kind,
      label,
      x: (p.qualityKept?.share ?? 0) * 100,
      y: rate.estimate,
      low: rate.low,
      high: rate.high,
      evidence,
    };
  });
  return points.map((p) => ({
    ...p,
    front: !points.some((q) => q !== p && q.x >= p.x && q.y >= p.y && (q.x > p.x || q.y > p.y)),
  }));
}

export function speedAgainstQuality(view: View): Picture | null {
  const points = qualityPoints(view);
  if (points.length < 2) return null;
  const { report } = view;
  const evidence = points.reduce<Evidence>((a, p) => weaker(a, p.evidence), 'measured');
  const kinds = [...new Set(points.map((p) => p.kind))];
  const front = points.filter((p) => p.front).sort((a, b) => a.x - b.x);
  const title = 'Throughput against published quality';
  const subtitle = `${report.model.name} on ${report.device.name}, ${formatTokens(report.contextTokens)} tokens, ${report.settings.batch === null ? 'largest batch that fits' : `batch ${report.settings.batch}`}; quality: worst published share of the uncompressed model's`;
  const source = `speed: ${timeSource(view)}; quality: the paper's tables`;
  return {
    id: 'speed-against-quality',
    title,
    subtitle,
    evidence,
    source,
    summary: `On the front, from best quality to fastest: ${[...front]
      .reverse()
      .map((p) => `${p.label} (${p.x.toFixed(0)} %, ${formatCount(p.y)} tok/s)`)
      .join(', ')}. Plans without a published figure are not drawn.`,
    chart: (theme) => {
      const words = { title, subtitle, source, evidence: EVIDENCE_WORDS[evidence] };
      const rates = spread(
        points.flatMap((p) => [p.low, p.high]),
        1.2,
      );
      const base = axis(theme, 'worst published share of the uncompressed quality, %');
      const low = Math.max(0, Math.floor((Math.min(...points.map((p) => p.x)) - 5) / 10) * 10);
      return {
        type: 'scatter',
        data: {
          datasets: [
            ...kinds.map((kind, i) => {
              const own = points.filter((p) => p.kind === kind);
              const colour = colourOf(theme, i);
              const { pointBackgroundColor, pointBorderColor } = evidenceStyle(
                own.reduce<Evidence>((a, p) => weaker(a, p.evidence), 'measured'),
                colour,
                theme.paper,
              );
              return {
                label: kind,
                data: own.map((p) => ({ x: p.x, y: p.y })),
                pointStyle: markOf(i),
                pointRadius: 6,
                pointBorderWidth: 2,
                pointBackgroundColor,
                pointBorderColor,
                backgroundColor: pointBackgroundColor,
                borderColor: colour,
              };
            }),
            {
              label: 'Pareto front',
              data: front.map((p) => ({ x: p.x, y: p.y })),
              showLine: true,
              borderColor: theme.ink,
              borderWidth: 1.5,
              borderDash: isEstimate(evidence) ? [6, 4] : [],
              pointRadius: 0,
              pointStyle: 'line' as const,
            },
          ],
        },
        options: {
          ...common(theme, words),
          scales: {
            x: {
              ...base,
              type: 'linear',
              min: low,
              max: Math.max(106, Math.ceil(Math.max(...points.map((p) => p.x)) + 4)),
              ticks: {
                ...base.ticks,
                stepSize: 10,
                callback: (v: string | number) => (Number(v) % 10 === 0 ? String(v) : ''),
              },
            },
            y: countScale(theme, 'tokens per second (log scale)', rates),
          },
        },
        plugins: [
          frame(theme, words),
          whiskers(
            points.map((p) => ({
              x: p.x,
              low: p.low,
              high: p.high,
              colour: faded(colourOf(theme, kinds.indexOf(p.kind)), 0.45),
            })),
          ),
          notes(
            theme,
            [...front, ...points.filter((p) => !p.front)].map((p) => ({
              x: p.x,
              y: p.y,
              text: p.label,
              side: 'left' as const,
            })),
          ),
        ],
      };
    },
  };
}
