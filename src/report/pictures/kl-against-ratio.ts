/** What compression costs on the measured model: KL against ratio, a line a codec and path. */
import type { ChartDataset } from 'chart.js';
import { groups as groupBy } from 'd3-array';
import { isUncompressed } from '../../codecs/registry.js';
import { klNumber, type Fidelity, type MeasuredRow } from '../../plan/evaluate/fidelity.js';
import { formatNumber } from '../../numbers/units.js';
import { whiskers } from './marks.js';
import { plainRows, sourceOf } from './measured-rows.js';
import { picture, type Picture } from './picture.js';
import { logScale, numberScale, spread } from './scales.js';
import { bandOf, colourOf, seriesStyle, type BandLine, type Theme } from './theme.js';

type Line = Pick<BandLine, 'label' | 'points'>;

/** Paths whose KL differs by no more than this are one line. */
const ALIKE = 0.02;

export function klLines(f: Fidelity): Line[] {
  const measured = plainRows(f).filter((row) => !isUncompressed(row.codec) && row.kl);
  const merged: { kind: string; paths: string[]; rows: MeasuredRow[] }[] = [];
  for (const [, rows] of groupBy(measured, (row) => `${row.codec.kind} ${row.path}`)) {
    const [{ codec, path }] = rows as [MeasuredRow];
    const twin = merged.find((m) => m.kind === codec.kind && alike(m.rows, rows));
    if (twin) twin.paths.push(path);
    else merged.push({ kind: codec.kind, paths: [path], rows });
  }
  const severalPaths = (kind: string): boolean =>
    merged.filter((m) => m.kind === kind).reduce((n, m) => n + m.paths.length, 0) > 1;
  return merged.map(({ kind, paths, rows }) => ({
    label: severalPaths(kind) ? `${kind} (${paths.join(', ')})` : kind,
    points: rows.flatMap(({ ratio, kl }) => (kl ? [{ x: ratio, y: kl.estimate, low: kl.low, high: kl.high }] : [])),
  }));
}

const alike = (a: readonly MeasuredRow[], b: readonly MeasuredRow[]): boolean =>
  a.length === b.length &&
  a.every(({ ratio, kl }, i) => {
    const other = b[i] as MeasuredRow;
    const [x, y] = [kl?.estimate ?? 0, other.kl?.estimate ?? 0];
    return ratio === other.ratio && Math.abs(x - y) <= ALIKE * Math.max(x, y);
  });

export function klAgainstRatio(f: Fidelity): Picture | null {
  const lines = klLines(f);
  if (lines.length === 0) return null;
  return picture({
    id: 'kl-against-ratio',
    title: 'What does compression cost?',
    subtitle: `${f.model.name}, f16; KL from the uncompressed cache on forced texts; bands and bars: 95 % intervals`,
    source: sourceOf(f),
    evidence: 'measured-here',
    summary: lines
      .map(
        ({ label, points }) =>
          `${label}: ${points.map(({ x, y }) => `${klNumber(y)} at ${formatNumber(x)}×`).join(', ')}.`,
      )
      .join(' '),
    draw: (theme) => {
      const points = lines.flatMap((l) => l.points);
      const ratios = [...new Set(points.map(({ x }) => x))].sort((a, b) => a - b);
      const x = { min: (ratios[0] ?? 1) / 1.15, max: (ratios.at(-1) ?? 1) * 1.15 };
      const kls = points.flatMap((p) => [p.low, p.high]);
      return {
        type: 'line',
        data: { datasets: lines.flatMap((line, i) => datasets(theme, line, i)) },
        scales: {
          x: logScale(
            theme,
            'compression ratio (log)',
            x,
            () => thinned(ratios),
            (v) => `${formatNumber(v)}×`,
          ),
          y: numberScale(theme, 'KL, nats a token (log)', spread(kls, 1.3)),
        },
        plugins: [
          whiskers(
            lines.flatMap((line, i) =>
              line.points.length > 1 ? [] : line.points.map((p) => ({ ...p, colour: colourOf(theme, i) })),
            ),
          ),
        ],
      };
    },
  });
}

/** Without ratios so close to the one before that their words would touch. */
function thinned(ratios: readonly number[]): number[] {
  const kept: number[] = [];
  for (const r of ratios) if (r >= 1.12 * (kept.at(-1) ?? 0)) kept.push(r);
  return kept;
}

const datasets = (theme: Theme, { label, points }: Line, i: number): ChartDataset[] => [
  ...(points.length > 1 ? bandOf(points, colourOf(theme, i)) : []),
  { label, data: points.map(({ x, y }) => ({ x, y })), ...seriesStyle(theme, i), pointRadius: 6 },
];
