/** Where passkeys are still found: a cell for each context and codec, darker where more are found. */
import type { Plugin } from 'chart.js';
import { isUncompressed } from '../../codecs/registry.js';
import { ratioLabel } from '../../codecs/ranks.js';
import type { Fidelity, MeasuredRow } from '../../plan/evaluate/fidelity.js';
import { sum } from '../../numbers/statistics.js';
import { formatTokens } from '../../numbers/units.js';
import { nameOf, rowsByCodec, sourceOf } from './measured-rows.js';
import { layer, pixelOf } from './marks.js';
import { picture, type Picture } from './picture.js';
import { axis, type Theme } from './theme.js';

/** Wider maps have no room for the words of a column. */
const MOST_COLUMNS = 16;

export function retrievalMap(f: Fidelity): Picture | null {
  const rows = rowsByCodec(f)
    .filter(({ retrieval }) => retrieval.length > 0)
    .slice(0, MOST_COLUMNS);
  if (rows.length === 0) return null;
  const measured = rows.flatMap(({ retrieval }) => retrieval);
  const contexts = [...new Set(measured.map((c) => c.contextTokens))].sort((a, b) => b - a);
  const count = Math.max(...measured.map(({ depths }) => sum(depths.map((d) => d.count))));
  const labels = rows.map((row) =>
    isUncompressed(row.codec) ? [row.codec.kind] : [row.codec.kind, `${ratioLabel(row.ratio)}×`],
  );
  return picture({
    id: 'retrieval-by-context',
    title: 'How far back is a passkey found?',
    subtitle: `${f.model.name}, f16; share of ${count} passkeys a cell, over all depths`,
    source: sourceOf(f),
    evidence: 'measured-here',
    summary: rows
      .map(
        (row) =>
          `${nameOf(row)}: ` +
          row.retrieval
            .map(({ contextTokens, score }) => `${score.toFixed(2)} at ${formatTokens(contextTokens)}`)
            .join(', ') +
          '.',
      )
      .join(' '),
    draw: (theme) => {
      const [x, y] = [axis(theme, 'codec and ratio'), axis(theme, 'context, tokens')];
      const grid = { display: false };
      return {
        type: 'line',
        // The cells are drawn below: a series of nothing carries the labels.
        data: { labels: rows.map((_, i) => i), datasets: [{ label: '', data: [] }] },
        scales: {
          x: {
            ...x,
            type: 'category',
            offset: true,
            grid,
            ticks: { ...x.ticks, color: theme.ink, autoSkip: false, callback: (i: number) => labels[i] ?? '' },
          },
          y: {
            ...y,
            type: 'category',
            labels: contexts.map(formatTokens),
            offset: true,
            grid,
            ticks: { ...y.ticks, color: theme.ink },
          },
        },
        plugins: [cells(theme, rows, contexts)],
      };
    },
  });
}

/** Two colours that differ for any vision and in grey, mixed by the share. */
const NONE = [246, 232, 214] as const;
const ALL = [0, 88, 143] as const;
const mixed = (share: number): string =>
  `rgb(${NONE.map((from, i) => Math.round(from + share * ((ALL[i] as number) - from))).join(', ')})`;

function cells(theme: Theme, rows: readonly MeasuredRow[], contexts: readonly number[]): Plugin {
  return layer('cells', 'beforeDatasetsDraw', (ctx, chart) => {
    const width = chart.chartArea.width / rows.length;
    const height = chart.chartArea.height / contexts.length;
    ctx.textAlign = 'center';
    ctx.textBaseline = 'middle';
    ctx.font = `${theme.embedded ? 12 : 15}px ${theme.font}`;
    rows.forEach((row, i) =>
      row.retrieval.forEach(({ contextTokens, score }) => {
        const j = contexts.indexOf(contextTokens);
        const [cx, cy] = [pixelOf(chart, 'x', i), pixelOf(chart, 'y', j)];
        ctx.fillStyle = mixed(score);
        ctx.fillRect(cx - width / 2 + 1, cy - height / 2 + 1, width - 2, height - 2);
        ctx.fillStyle = score > 0.45 ? '#ffffff' : '#1b1f24';
        ctx.fillText(score.toFixed(2), cx, cy);
      }),
    );
  });
}
