/** Where passkeys are still found: a cell for each context and codec, darker where more are found. */
import type { Plugin } from 'chart.js';
import { isUncompressed } from '../../codecs/registry.js';
import { ratioLabel } from '../../codecs/ranks.js';
import type { Fidelity, MeasuredRow } from '../../plan/evaluate/fidelity.js';
import { formatTokens } from '../../numbers/units.js';
import { nameOf, rowsByCodec, sourceOf } from './measured-rows.js';
import { layer, pixelOf } from './marks.js';
import { picture, type Picture } from './picture.js';
import { axis, type Theme } from './theme.js';

/** Wider maps have no room for the words of a column. */
const MOST_COLUMNS = 16;

interface Map {
  readonly rows: readonly MeasuredRow[];
  readonly contexts: readonly number[];
  /** Share that is found; null where nothing was asked. */
  readonly score: (row: MeasuredRow, contextTokens: number) => number | null;
  /** Passkeys of a cell. */
  readonly count: number;
}

function mapOf(f: Fidelity): Map | null {
  const rows = rowsByCodec(f)
    .filter(({ retrieval }) => retrieval.length > 0)
    .slice(0, MOST_COLUMNS);
  const cells = rows.flatMap(({ retrieval }) => retrieval);
  if (cells.length === 0) return null;
  return {
    rows,
    contexts: [...new Set(cells.map((c) => c.contextTokens))].sort((a, b) => b - a),
    score: (row, contextTokens) => row.retrieval.find((c) => c.contextTokens === contextTokens)?.score ?? null,
    count: Math.max(...cells.map(({ depths }) => depths.reduce((n, d) => n + d.count, 0))),
  };
}

export function retrievalMap(f: Fidelity): Picture | null {
  const map = mapOf(f);
  if (!map) return null;
  const labels = map.rows.map((row) =>
    isUncompressed(row.codec) ? [row.codec.kind] : [row.codec.kind, `${ratioLabel(row.ratio)}×`],
  );
  return picture({
    id: 'retrieval-by-context',
    title: 'How far back is a passkey found?',
    subtitle: `${f.model.name}, f16; share of ${map.count} passkeys a cell, over all depths`,
    source: sourceOf(f),
    evidence: 'measured-here',
    summary: map.rows
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
        data: { labels: map.rows.map((_, i) => i), datasets: [{ label: '', data: [] }] },
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
            labels: map.contexts.map((c) => formatTokens(c)),
            offset: true,
            grid,
            ticks: { ...y.ticks, color: theme.ink },
          },
        },
        plugins: [cells(theme, map)],
      };
    },
  });
}

/** Two colours that differ for any vision and in grey, mixed by the share. */
const NONE = [246, 232, 214] as const;
const ALL = [0, 88, 143] as const;
const mixed = (share: number): string =>
  `rgb(${NONE.map((from, i) => Math.round(from + share * ((ALL[i] as number) - from))).join(', ')})`;

function cells(theme: Theme, map: Map): Plugin {
  return layer('cells', 'beforeDatasetsDraw', (ctx, chart) => {
    const width = chart.chartArea.width / map.rows.length;
    const height = chart.chartArea.height / map.contexts.length;
    ctx.textAlign = 'center';
    ctx.textBaseline = 'middle';
    ctx.font = `${theme.embedded ? 12 : 15}px ${theme.font}`;
    map.rows.forEach((row, i) =>
      map.contexts.forEach((context, j) => {
        const score = map.score(row, context);
        if (score === null) return;
        const [cx, cy] = [pixelOf(chart, 'x', i), pixelOf(chart, 'y', j)];
        ctx.fillStyle = mixed(score);
        ctx.fillRect(cx - width / 2 + 1, cy - height / 2 + 1, width - 2, height - 2);
        ctx.fillStyle = score > 0.45 ? '#ffffff' : '#1b1f24';
        ctx.fillText(score.toFixed(2), cx, cy);
      }),
    );
  });
}
