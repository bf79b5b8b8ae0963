/** Largest batch against compression ratio, with the line that a cache alone would follow. */
import type { CodecKind } from '../../codecs/codec.js';
import { pathSpec } from '../../codecs/paths.js';
import { codecSpec, isUncompressed } from '../../codecs/registry.js';
import { configurationOf, usableBytes } from '../../plan/evaluate.js';
import { bytesPerSequence, memoryModel } from '../../cost/memory.js';
import { formatCount, formatNumber, formatTokens } from '../../units.js';
import type { View } from '../view.js';
import { frame, notes } from './marks.js';
import { EVIDENCE_WORDS, type Picture } from './picture.js';
import { countScale, numberScale, spread } from './scales.js';
import { colourOf, common, markOf } from './theme.js';

export interface BatchPoint {
  readonly label: string;
  readonly ratio: number;
  readonly batch: number;
}

/** Largest batches by codec kind: of each setting the path that holds most. Without eviction, which is another axis. */
export function batchSeries(view: View): Map<CodecKind, BatchPoint[]> {
  const series = new Map<CodecKind, Map<string, BatchPoint>>();
  for (const { plan } of view.all) {
    if (plan.eviction || pathSpec(plan.path).restores || isUncompressed(plan.codec)) continue;
    const points = series.get(plan.codec.kind) ?? new Map<string, BatchPoint>();
    series.set(plan.codec.kind, points);
    const known = points.get(plan.codec.label);
    if (!known || plan.maxBatch.exact > known.batch)
      points.set(plan.codec.label, { label: plan.codec.label, ratio: plan.codec.ratio, batch: plan.maxBatch.exact });
  }
  return new Map(
    [...series].map(([kind, points]) => [
      kind,
      [...points.values()].filter((p) => p.batch >= 1).sort((a, b) => a.ratio - b.ratio),
    ]),
  );
}

/** Sequences of the full cache that the memory would hold if they could be divided; null where it is not planned. */
export function fullBatch(view: View): number | null {
  const full = view.all.find((e) => isUncompressed(e.plan.codec) && !e.plan.eviction);
  if (!full) return null;
  const m = memoryModel(
    configurationOf(view.request, full.candidate),
    view.report.contextTokens,
    view.request.pageTokens,
  );
  const free = usableBytes(view.request) - m.weightsBytes - m.workspaceFixedBytes;
  return free > 0 ? free / bytesPerSequence(m) : null;
}

export function batchAgainstRatio(view: View): Picture | null {
  const series = [...batchSeries(view)].filter(([, points]) => points.length > 0);
  const full = fullBatch(view);
  if (series.length === 0 || series.every(([, p]) => p.length < 1)) return null;
  const { report } = view;
  const points = series.flatMap(([, p]) => p);
  const ratios = spread([1, ...points.map((p) => p.ratio)], 1.25);
  const ideal = full === null ? [] : [ratios.min, ratios.max].map((x) => ({ x, y: full * x }));
  const most = points.reduce((a, b) => (b.batch > a.batch ? b : a));
  const title = 'Largest batch against compression ratio';
  const subtitle = `${report.model.name} on ${report.device.name}, ${formatTokens(report.contextTokens)} tokens a sequence; ratio of the looped core's cache`;
  const source = 'memory model of lla-sim: weights, codec parameters, cache, workspace and reserve';
  return {
    id: 'batch-against-ratio',
    title,
    subtitle,
    source,
    evidence: 'exact',
    summary: `${most.label} holds most: ${most.batch} sequences${full === null ? '' : `, ${formatNumber(most.batch / full)} times the full cache at ratio ${formatNumber(most.ratio)}`}. Below the ideal line lie codec parameters, accumulators and workspace, which the ratio does not shrink.`,
    chart: (theme) => {
      const words = { title, subtitle, source, evidence: EVIDENCE_WORDS.exact };
      return {
        type: 'scatter',
        data: {
          datasets: [
            ...series.map(([kind, p], i) => ({
              label: kind,
              data: p.map((q) => ({ x: q.ratio, y: q.batch })),
              showLine: p.length > 1,
              borderColor: colourOf(theme, i),
              backgroundColor: colourOf(theme, i),
              pointBackgroundColor: colourOf(theme, i),
              borderWidth: 2,
              pointRadius: 5,
              pointStyle: markOf(i),
            })),
            ...(full === null
              ? []
              : [
                  {
                    label: 'full cache',
                    data: full >= 1 ? [{ x: 1, y: Math.floor(full) }] : [],
                    pointStyle: 'rect' as const,
                    pointRadius: 6,
                    backgroundColor: theme.ink,
                    borderColor: theme.ink,
                  },
                  {
                    label: 'ideal: full cache × ratio',
                    data: ideal,
                    showLine: true,
                    borderColor: theme.muted,
                    borderDash: [2, 3],
                    borderWidth: 2,
                    pointRadius: 0,
                    pointStyle: 'line' as const,
                  },
                ]),
          ],
        },
        options: {
          ...common(theme, words),
          scales: {
            x: numberScale(theme, 'compression ratio (log scale)', ratios),
            y: countScale(
              theme,
              'sequences that fit (log scale)',
              spread([...points.map((p) => p.batch), ...(full !== null && full >= 1 ? [Math.floor(full)] : [])], 1.6),
            ),
          },
        },
        plugins: [
          frame(theme, words),
          notes(
            theme,
            [
              most,
              ...series
                .flatMap(([kind, own]) => (codecSpec({ kind }).latentFor === 'one-head' ? own : []))
                .filter((p) => p !== most),
            ].map((p) => ({ x: p.ratio, y: p.batch, text: `${formatCount(p.batch)}` })),
          ),
        ],
      };
    },
  };
}
