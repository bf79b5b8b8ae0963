/** What fills the memory: weights, codec, caches, accumulators, workspace, reserve, and what is left. */
import { isUncompressed } from '../../codecs/registry.js';
import type { Plan } from '../../plan/types.js';
import { formatDecimalBytes, formatTokens } from '../../units.js';
import { pathLabel } from '../../plan/names.js';
import { representative, shownPlan, type View } from '../view.js';
import { frame } from './marks.js';
import { EVIDENCE_WORDS, type Picture } from './picture.js';
import { axis, colourOf, common, type Theme } from './theme.js';

export const PARTS = [
  'weights',
  'codec parameters',
  'caches',
  'in flight and eviction state',
  'workspace',
  'reserve',
  'free',
] as const;
export type Part = (typeof PARTS)[number];

const MOST_ROWS = 8;

/**
 * Bytes of a plan's memory by part, at the batch it decodes. The parts sum up to the device's memory, or to more where
 * nothing fits.
 */
export function memoryParts(plan: Plan, vramBytes: number): Record<Part, number> {
  const { memory: m } = plan;
  const batch = batchOf(plan);
  const parts = {
    weights: m.weightsBytes,
    'codec parameters': m.codecBytes,
    caches: batch * m.kvBytesPerSequence,
    'in flight and eviction state': batch * (m.inFlightBytesPerSequence + m.evictionBytesPerSequence),
    workspace: m.workspaceBytes,
    reserve: m.reservedBytes,
  };
  const used = Object.values(parts).reduce((a, b) => a + b, 0);
  return { ...parts, free: Math.max(0, vramBytes - used) };
}

/** Sequences that `memory` is counted for: those decoded; one where none fits. */
export const batchOf = (plan: Plan): number => Math.max(1, plan.decode.batch);

/** The recommended plan, the larger alternative, the full cache, and the front. */
export function breakdownRows(view: View): Plan[] {
  const { report } = view;
  const named = [
    shownPlan(view),
    report.plans.find((p) => p.id === report.answer.upside?.planId),
    view.all.find((e) => isUncompressed(e.plan.codec) && !e.plan.eviction)?.plan,
  ];
  const seen = new Set<string>();
  return [...named, ...report.plans.filter((p) => p.pareto), ...report.plans]
    .filter((p): p is Plan => {
      if (!p || seen.has(p.id)) return false;
      seen.add(p.id);
      return true;
    })
    .slice(0, MOST_ROWS);
}

const colours = (theme: Theme): Record<Part, string> => ({
  weights: colourOf(theme, 6),
  'codec parameters': colourOf(theme, 4),
  caches: colourOf(theme, 0),
  'in flight and eviction state': colourOf(theme, 2),
  workspace: colourOf(theme, 3),
  reserve: colourOf(theme, 5),
  free: theme.grid,
});

export function memoryBreakdown(view: View): Picture | null {
  const rows = breakdownRows(view);
  const first = rows[0];
  if (!first) return null;
  const { report } = view;
  const vram = report.device.vramBytes;
  const parts = rows.map((p) => memoryParts(p, vram));
  const title = 'What fills the memory';
  const subtitle = `${report.model.name} on ${report.device.name}, ${formatDecimalBytes(vram)}, ${formatTokens(report.contextTokens)} tokens a sequence; GB of 10^9 bytes${report.settings.gpus > 1 ? ', of one of the GPUs' : ''}`;
  const source = 'memory model of lla-sim';
  const labels = rows.map((p) => `${representative(p)} ${isUncompressed(p.codec) ? '' : pathLabel(p)}`.trim());
  const batches = rows.map((p) => (p.maxBatch.exact < 1 ? 'does not fit' : `batch ${batchOf(p)}`));
  return {
    id: 'memory-breakdown',
    title,
    subtitle,
    source,
    evidence: 'exact',
    summary: `${labels[0]} (${batches[0]}): ${PARTS.filter((part) => (parts[0]?.[part] ?? 0) > 0)
      .map((part) => `${part} ${formatDecimalBytes(parts[0]?.[part] ?? 0)}`)
      .join(', ')}.`,
    chart: (theme) => {
      const words = { title, subtitle, source, evidence: EVIDENCE_WORDS.exact };
      const colour = colours(theme);
      const options = common(theme, words);
      const x = axis(theme, 'memory, GB');
      const y = axis(theme, '');
      return {
        type: 'bar',
        data: {
          labels: labels.map((l, i) => [l, batches[i] ?? '']),
          datasets: PARTS.map((part) => ({
            label: part,
            data: parts.map((p) => p[part] / 1e9),
            backgroundColor: colour[part],
            borderColor: theme.paper,
            borderWidth: 1,
            maxBarThickness: 34,
          })),
        },
        options: {
          ...options,
          indexAxis: 'y',
          scales: {
            x: {
              ...x,
              stacked: true,
              min: 0,
              max: Math.max(vram, ...parts.map((p) => Object.values(p).reduce((a, b) => a + b, 0))) / 1e9,
            },
            y: {
              ...y,
              stacked: true,
              ticks: { ...y.ticks, color: theme.ink, autoSkip: false },
              grid: { display: false },
              title: { display: false },
            },
          },
        },
        plugins: [frame(theme, words)],
      };
    },
  };
}
