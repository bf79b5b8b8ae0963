/// <reference lib="dom" />
/**
 * Plugins for marks that chart.js does not draw: words beside points, vertical intervals, the source below the picture.
 */
import type { Chart, Plugin } from 'chart.js';
import type { Theme } from './theme.js';

export interface Note {
  readonly x: number;
  readonly y: number;
  readonly text: string;
  /** The words stand above the point, not on its right. */
  readonly above?: boolean;
  readonly dot?: boolean;
}

/** Pixels of a value on an axis. */
export const pixelOf = ({ scales }: Pick<Chart, 'scales'>, axis: 'x' | 'y', value: number): number =>
  scales[axis]?.getPixelForValue(value) ?? 0;

/** A plugin that draws below or over the data, and leaves the canvas's settings as they were. */
export const layer = (
  id: string,
  when: 'beforeDatasetsDraw' | 'afterDatasetsDraw',
  draw: (ctx: CanvasRenderingContext2D, chart: Chart) => void,
): Plugin => ({
  id,
  [when]: (chart: Chart) => {
    chart.ctx.save();
    draw(chart.ctx, chart);
    chart.ctx.restore();
  },
});

/** The font of words in a picture. @returns its size, pixels */
function useFont(ctx: CanvasRenderingContext2D, theme: Theme): number {
  const size = theme.embedded ? 11 : 13;
  ctx.font = `${size}px ${theme.font}`;
  ctx.textBaseline = 'middle';
  return size;
}

interface Box {
  left: number;
  top: number;
  right: number;
  bottom: number;
}
const overlaps = (a: Box, b: Box): boolean =>
  a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

/** Words beside points, moved or left out where they would cover each other. */
export function notes(theme: Theme, list: readonly Note[]): Plugin {
  return layer('notes', 'afterDatasetsDraw', (ctx, chart) => {
    const { chartArea } = chart;
    const taken: Box[] = marksOf(chart);
    const size = useFont(ctx, theme);
    for (const note of list) {
      const at = { x: pixelOf(chart, 'x', note.x), y: pixelOf(chart, 'y', note.y) };
      if (note.dot) ring(ctx, at, theme);
      const width = ctx.measureText(note.text).width;
      const [right, left, middle] = [9, -width - 9, -width / 2];
      const spots: readonly (readonly [dx: number, dy: number])[] = [
        note.above ? [middle, -16] : [right, 0],
        [right, -12],
        [right, 12],
        [left, -12],
        [left, 12],
        [middle, 18],
        [middle, -18],
      ];
      for (const [dx, dy] of spots) {
        const [x, y] = [at.x + dx, at.y + dy];
        const box = { left: x - 2, right: x + width + 2, top: y - size / 2 - 2, bottom: y + size / 2 + 2 };
        if (
          box.left < chartArea.left ||
          box.right > chart.width - 1 ||
          box.top < chartArea.top ||
          box.bottom > chartArea.bottom ||
          taken.some((t) => overlaps(t, box))
        )
          continue;
        taken.push(box);
        ctx.fillStyle = `${theme.paper}cc`;
        ctx.fillRect(box.left, box.top, box.right - box.left, box.bottom - box.top);
        ctx.fillStyle = theme.ink;
        ctx.fillText(note.text, x, y);
        break;
      }
    }
  });
}

/**
 * Words to the right of the plot, at the height of their lines' last points, moved apart where lines end close
 * together.
 */
export function endLabels(
  theme: Theme,
  list: readonly { readonly y: number; readonly text: string; readonly colour: string }[],
): Plugin {
  return layer('end-labels', 'afterDatasetsDraw', (ctx, chart) => {
    const { chartArea } = chart;
    const gap = useFont(ctx, theme) + 2;
    const at = list.map((l) => ({ ...l, end: pixelOf(chart, 'y', l.y) })).sort((a, b) => a.end - b.end);
    const rows: number[] = [];
    for (const l of at) rows.push(Math.max(l.end, (rows.at(-1) ?? -Infinity) + gap));
    // Words that were pushed below the plot are pushed back up.
    for (let i = rows.length - 1, limit = chartArea.bottom + gap / 2; i >= 0; i--) {
      rows[i] = Math.min(rows[i] as number, limit);
      limit = (rows[i] as number) - gap;
    }
    at.forEach((l, i) => {
      ctx.strokeStyle = l.colour;
      ctx.lineWidth = 1;
      ctx.beginPath();
      ctx.moveTo(chartArea.right + 6, l.end);
      ctx.lineTo(chartArea.right + 14, rows[i] as number);
      ctx.stroke();
      ctx.fillStyle = theme.ink;
      ctx.fillText(l.text, chartArea.right + 17, rows[i] as number);
    });
  });
}

/** Marks of the points drawn: words may not cover them. */
function marksOf(chart: Chart): Box[] {
  return chart
    .getSortedVisibleDatasetMetas()
    .flatMap((meta) =>
      meta.data
        .filter((e) => (e.options as { radius?: number }).radius !== 0)
        .map(({ x, y }) => ({ left: x - 5, right: x + 5, top: y - 5, bottom: y + 5 })),
    );
}

function ring(ctx: CanvasRenderingContext2D, at: { x: number; y: number }, theme: Theme): void {
  ctx.beginPath();
  ctx.arc(at.x, at.y, 6, 0, 2 * Math.PI);
  ctx.strokeStyle = theme.ink;
  ctx.lineWidth = 1.5;
  ctx.stroke();
}

export interface Whisker {
  readonly x: number;
  readonly low: number;
  readonly high: number;
  readonly colour: string;
}

/** Vertical intervals with end caps. */
export function whiskers(list: readonly Whisker[]): Plugin {
  return layer('whiskers', 'beforeDatasetsDraw', (ctx, chart) => {
    const { chartArea } = chart;
    ctx.lineWidth = 1.2;
    for (const w of list) {
      const x = pixelOf(chart, 'x', w.x);
      const clamp = (value: number): number =>
        Math.min(chartArea.bottom, Math.max(chartArea.top, pixelOf(chart, 'y', value)));
      const [low, high] = [clamp(w.low), clamp(w.high)];
      ctx.strokeStyle = w.colour;
      ctx.beginPath();
      ctx.moveTo(x, low);
      ctx.lineTo(x, high);
      for (const y of [low, high]) {
        ctx.moveTo(x - 4, y);
        ctx.lineTo(x + 4, y);
      }
      ctx.stroke();
    }
  });
}

/** Paper behind the picture, and its evidence and source below, where no page around it says so. */
export function frame(theme: Theme, words: { evidence: string; source: string }): Plugin {
  return {
    id: 'frame',
    beforeDraw: ({ ctx, width, height }) => {
      if (theme.embedded) return;
      ctx.save();
      ctx.fillStyle = theme.paper;
      ctx.fillRect(0, 0, width, height);
      ctx.restore();
    },
    afterDraw: ({ ctx, height, width }) => {
      if (theme.embedded) return;
      ctx.save();
      ctx.fillStyle = theme.muted;
      ctx.textBaseline = 'alphabetic';
      ctx.font = `12px ${theme.font}`;
      ctx.fillText(fitting(ctx, `Evidence: ${words.evidence}.`, width - 36), 18, height - 26);
      ctx.fillText(fitting(ctx, `Source: ${words.source}.`, width - 36), 18, height - 10);
      ctx.restore();
    },
  };
}

/** Text cut to a width in pixels. */
function fitting(ctx: Pick<CanvasRenderingContext2D, 'measureText'>, text: string, width: number): string {
  if (ctx.measureText(text).width <= width) return text;
  let cut = text.length;
  while (cut > 0 && ctx.measureText(`${text.slice(0, cut)}...`).width > width) cut--;
  return `${text.slice(0, cut)}...`;
}
