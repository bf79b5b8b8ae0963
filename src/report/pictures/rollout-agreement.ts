/** How long a greedy rollout follows that of the uncompressed cache. */
import type { Fidelity, MeasuredRow } from '../../plan/evaluate/fidelity.js';
import { nameOf, rowsByCodec, sourceOf } from './measured-rows.js';
import { picture, type Picture } from './picture.js';
import { axis, seriesStyle } from './theme.js';

/** More lines than colours cannot be told apart. */
const MOST_LINES = 7;

/** Codecs of the kind with most ratios, then of the others those that follow longest. */
function drawn(f: Fidelity): MeasuredRow[] {
  const rows = rowsByCodec(f).filter((row) => row.rollouts.length > 0 && row.ratio > 1);
  const count = (kind: string): number => rows.filter(({ codec }) => codec.kind === kind).length;
  const follows = (row: MeasuredRow): number => row.agreedTokens?.estimate ?? 0;
  const sorted = [...rows].sort((a, b) => count(b.codec.kind) - count(a.codec.kind) || follows(b) - follows(a));
  const isLead = ({ codec }: MeasuredRow): boolean => codec.kind === sorted[0]?.codec.kind;
  const own = sorted.filter(isLead).sort((a, b) => a.ratio - b.ratio);
  const others = sorted.filter((row) => !isLead(row)).sort((a, b) => follows(b) - follows(a));
  return [...own, ...others].slice(0, MOST_LINES);
}

export function rolloutAgreement(f: Fidelity): Picture | null {
  const rows = drawn(f);
  const longest = Math.max(f.rolloutTokens, ...rows.flatMap(({ rollouts }) => rollouts));
  if (rows.length === 0 || longest < 1) return null;
  const rollouts = Math.max(...rows.map((row) => row.rollouts.length));
  return picture({
    id: 'rollout-agreement',
    title: 'How long does a rollout follow the uncompressed model?',
    subtitle: `${f.model.name}, f16; ${rollouts} greedy rollouts of ${longest} tokens; share that has not left it yet`,
    source: sourceOf(f),
    evidence: 'measured-here',
    summary: rows
      .map((row) => `${nameOf(row)}: ${(row.agreedTokens?.estimate ?? 0).toFixed(1)} tokens of ${longest} on average.`)
      .join(' '),
    draw: (theme) => {
      const y = axis(theme, 'rollouts that still agree, %');
      return {
        type: 'line',
        data: {
          datasets: rows.map((row, i) => ({
            label: nameOf(row),
            data: Array.from({ length: longest + 1 }, (_, tokens) => ({
              x: tokens,
              y: (100 * row.rollouts.filter((agreed) => agreed >= tokens).length) / row.rollouts.length,
            })),
            ...seriesStyle(theme, i),
            stepped: 'before' as const,
            // Lines that coincide show by their marks.
            pointRadius: ({ dataIndex }: { dataIndex: number }) => (dataIndex % rows.length === i ? 6 : 0),
          })),
        },
        scales: {
          x: { ...axis(theme, 'tokens generated'), type: 'linear', min: 0, max: longest },
          y: {
            ...y,
            type: 'linear',
            min: 0,
            // Room for marks at 100.
            max: 104,
            ticks: { ...y.ticks, stepSize: 20, callback: (v: number | string) => (Number(v) > 100 ? '' : v) },
          },
        },
      };
    },
  });
}
