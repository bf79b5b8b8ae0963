/// <reference lib="dom" />
/** Pictures drawn into the canvases of a page: in the colours of the screen, and on white where it is printed. */
import {
  BarController,
  BarElement,
  CategoryScale,
  Chart,
  type ChartConfiguration,
  type ChartType,
  Filler,
  Legend,
  LinearScale,
  LineController,
  LineElement,
  LogarithmicScale,
  PointElement,
  ScatterController,
  SubTitle,
  Title,
  Tooltip,
} from 'chart.js';
import type { Picture } from '../pictures/picture.js';
import { DARK, LIGHT, type Theme } from '../pictures/theme.js';

Chart.register(
  BarController,
  BarElement,
  CategoryScale,
  Filler,
  Legend,
  LinearScale,
  LineController,
  LineElement,
  LogarithmicScale,
  PointElement,
  ScatterController,
  SubTitle,
  Title,
  Tooltip,
);

export interface Drawing {
  /** Draws these pictures, in `#figure-ID canvas`, in place of those before. */
  draw(pictures: readonly Picture[]): void;
}

const typeOf = (config: ChartConfiguration): unknown => ('type' in config ? config.type : null);

/** Shows another configuration of the same type: several times faster than a chart that is built anew. */
function change({ chart, config }: { chart: Chart; config: ChartConfiguration }, next: ChartConfiguration): void {
  chart.data = next.data;
  chart.options = next.options ?? {};
  // A chart reads its plugins from the configuration that it was made with, and has no setter for them.
  config.plugins?.splice(0, Infinity, ...(next.plugins ?? []));
  chart.update('none');
}

/** @param signal ends it: its canvases leave the page */
export function drawing(signal?: AbortSignal): Drawing {
  const until = signal ? { signal } : {};
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const font = getComputedStyle(document.body).fontFamily;
  /** Charts by the canvas that they are on, each with the configuration that it reads. */
  const charts = new Map<HTMLCanvasElement, { readonly chart: Chart; readonly config: ChartConfiguration }>();
  let pictures: readonly Picture[] = [];

  function redraw(isDark = dark.matches): void {
    const theme: Theme = { ...(isDark ? DARK : LIGHT), font, embedded: true };
    const shown = pictures.flatMap((p) => {
      const canvas = document.querySelector<HTMLCanvasElement>(`#figure-${p.id} canvas`);
      return canvas ? [{ canvas, config: p.chart(theme) }] : [];
    });
    for (const [canvas, { chart, config }] of charts) {
      if (shown.some((s) => s.canvas === canvas && typeOf(s.config) === typeOf(config))) continue;
      chart.destroy();
      charts.delete(canvas);
    }
    for (const { canvas, config } of shown) {
      const before = charts.get(canvas);
      if (before) change(before, config);
      // Named, as working the type out of these arguments takes the compiler seconds.
      else charts.set(canvas, { chart: new Chart<ChartType>(canvas, config), config });
    }
  }

  dark.addEventListener('change', () => redraw(), until);
  // Paper is white whatever the screen is.
  addEventListener(
    'beforeprint',
    () => {
      redraw(false);
      for (const { chart } of charts.values()) chart.resize();
    },
    until,
  );
  addEventListener('afterprint', () => redraw(), until);
  return {
    draw(shown) {
      pictures = shown;
      redraw();
    },
  };
}
