/** What fills the memory when each plan runs at its own batch: weights, codec, caches, workspace, reserve, the rest. */
import { isUncompressed } from '../../codecs/registry.js';
import type { Plan } from '../../plan/types.js';
import { present } from '../../present.js';
import { planName } from '../../plan/words/words.js';
import { sum } from '../../numbers/statistics.js';
import { counted, formatDecimalBytes, formatTokens } from '../../numbers/units.js';
import { decisionRows, FAILS } from '../decision.js';
import { left, right, type Column } from '../text/text.js';
import { shownPlan, type View } from '../view.js';
import { picture, type Picture } from './picture.js';
import { axis, colourOf, type Theme } from './theme.js';

/** Parts in their order, each with the number of its colour; what is free is as pale as a grid. */
const COLOURS = {
  weights: 6,
  'codec parameters': 4,
  caches: 0,
  'in flight and eviction state': 2,
  workspace: 3,
  reserve: 5,
  free: null,
} as const;
export type Part = keyof typeof COLOURS;
export const PARTS = Object.keys(COLOURS) as Part[];

const colourIn = (theme: Theme, part: Part): string =>
  COLOURS[part] === null ? theme.grid : colourOf(theme, COLOURS[part]);

const MOST_ROWS = 5;

/**
 * Bytes of a plan's memory by part for so many sequences. The parts sum up to the device's memory, or to more where
 * they do not fit.
 */
export function memoryParts(plan: Plan, vramBytes: number, batch = batchOf(plan)): Record<Part, number> {
  const { memory: m } = plan;
  const parts = {
    weights: m.weightsBytes,
    'codec parameters': m.codecBytes,
    caches: batch * m.kvBytesPerSequence,
    'in flight and eviction state': batch * (m.inFlightBytesPerSequence + m.evictionBytesPerSequence),
    // `workspaceBytes` is that of the batch that the plan decodes; it is linear in the batch.
    workspace: m.workspaceBytes + (batch - batchOf(plan)) * m.workspaceBytesPerSequence,
    reserve: m.reservedBytes,
  };
  return { ...parts, free: Math.max(0, vramBytes - sum(Object.values(parts))) };
}

/** Sequences that `memory` is counted for: those decoded; one where none fits. */
export const batchOf = (plan: Plan): number => Math.max(1, plan.decode.batch);

/** A table of the parts. @param title of its first column */
export function memoryColumns(plan: Plan, vramBytes: number, title: string): Column<Part>[] {
  const parts = memoryParts(plan, vramBytes);
  return [
    left(title, (part) => part),
    right('bytes', (part) => String(parts[part])),
    right('size', (part) => formatDecimalBytes(parts[part])),
    right('share', (part) => `${((100 * parts[part]) / vramBytes).toFixed(1)} %`),
  ];
}

/** The plans that the answer names, and the full cache. */
function breakdownRows(view: View): Plan[] {
  const { report } = view;
  const named = present([
    shownPlan(view),
    ...decisionRows(report).flatMap((r) => (r.role === FAILS ? [] : [r.plan])),
    view.all.find((e) => isUncompressed(e.plan.codec) && !e.plan.eviction)?.plan,
    report.plans[0],
  ]);
  return named.filter((p, i) => named.findIndex((q) => q.id === p.id) === i).slice(0, MOST_ROWS);
}

export function memoryBreakdown(view: View): Picture | null {
  const rows = breakdownRows(view);
  const first = rows[0];
  if (!first) return null;
  const { report } = view;
  const vram = report.device.vramBytes;
  const parts = rows.map((p) => memoryParts(p, vram));
  const used = parts.map((p) => sum(Object.values(p)) - p.free);
  const labels = rows.map((p) => [
    planName(p),
    p.maxBatch.exact < 1 ? 'does not fit' : `${batchOf(p)} of at most ${p.maxBatch.exact} sequences`,
  ]);
  return picture({
    id: 'memory-breakdown',
    title: 'What fills the memory?',
    subtitle:
      `${report.model.name} on ${report.device.name}, ${formatDecimalBytes(vram)}, ` +
      `${formatTokens(report.contextTokens)} tokens a sequence; GB of 10^9 ` +
      `bytes${report.settings.gpus > 1 ? ', of one of the GPUs' : ''}`,
    source: 'memory model of lla-sim',
    evidence: 'exact',
    summary:
      rows
        .map(
          (p, i) =>
            `${planName(p)} takes ${formatDecimalBytes(used[i] as number)} at ` +
            `${counted(batchOf(p), 'sequence')}${(used[i] as number) > vram ? ', which does not fit' : ''}`,
        )
        .join('; ') + '.',
    draw: (theme) => {
      const x = axis(theme, 'memory, GB');
      const y = axis(theme, '');
      return {
        type: 'bar',
        data: {
          labels,
          datasets: PARTS.filter((part) => parts.some((p) => p[part] > 0)).map((part) => ({
            label: part,
            data: parts.map((p) => p[part] / 1e9),
            backgroundColor: colourIn(theme, part),
            borderColor: theme.paper,
            borderWidth: 1,
            maxBarThickness: 34,
          })),
        },
        options: { indexAxis: 'y' },
        scales: {
          x: { ...x, stacked: true, min: 0, max: Math.max(vram, ...used) / 1e9 },
          y: {
            ...y,
            stacked: true,
            ticks: { ...y.ticks, color: theme.ink, autoSkip: false },
            grid: { display: false },
            title: { display: false },
          },
        },
      };
    },
  });
}
