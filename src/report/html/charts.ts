/// <reference lib="dom" />
/** Pictures drawn into the canvases of a page: in the colours of the screen, and on white where it is printed. */
import {
  BarController,
  BarElement,
  CategoryScale,
  Chart,
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

/** @param signal ends it: its canvases leave the page */
export function drawing(signal?: AbortSignal): Drawing {
  const until = signal ? { signal } : {};
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const font = getComputedStyle(document.body).fontFamily;
  let charts: Chart[] = [];
  let pictures: readonly Picture[] = [];

  function redraw(isDark = dark.matches): void {
    const theme: Theme = { ...(isDark ? DARK : LIGHT), font, embedded: true };
    for (const chart of charts) chart.destroy();
    charts = pictures.flatMap((p) => {
      const canvas = document.querySelector<HTMLCanvasElement>(`#figure-${p.id} canvas`);
      // Named, as working the type out of these arguments takes the compiler seconds.
      return canvas ? [new Chart<ChartType>(canvas, p.chart(theme))] : [];
    });
  }

  dark.addEventListener('change', () => redraw(), until);
  // Paper is white whatever the screen is.
  addEventListener(
    'beforeprint',
    () => {
      redraw(false);
      for (const chart of charts) chart.resize();
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
