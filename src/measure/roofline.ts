/// <reference lib="dom" />
/** The roofline that fills while kernels are measured. */
import { Chart, type ChartType } from 'chart.js';
import { rooflineOf } from '../report/pictures/kernel-roofline.js';
import { DARK, LIGHT } from '../report/pictures/theme.js';
import type { Calibration } from '../schema/calibration.js';
import { readCalibration } from '../schema/drift.js';

export class RooflineChart {
  private chart: Chart | null = null;
  private last: Calibration | null = null;
  private readonly dark = matchMedia('(prefers-color-scheme: dark)');

  constructor() {
    this.dark.addEventListener('change', () => this.last && this.draw(this.last));
    addEventListener('beforeprint', () => this.last && this.draw(this.last, false));
    addEventListener('afterprint', () => this.last && this.draw(this.last));
  }

  /** Draws what was measured so far. @returns the picture in words: best share of its ceiling by kernel */
  draw(calibration: Calibration, dark = this.dark.matches): string {
    this.last = calibration;
    const picture = rooflineOf({ file: 'this page', content: readCalibration(calibration), stale: [] });
    const figure = document.getElementById('figure-m-roofline');
    const canvas = figure?.querySelector('canvas');
    if (!picture || !figure || !canvas) return '';
    figure.hidden = false;
    this.chart?.destroy();
    const theme = {
      ...(dark ? DARK : LIGHT),
      font: getComputedStyle(document.body).fontFamily,
      embedded: true,
    };
    const config = picture.chart(theme);
    this.chart = new Chart<ChartType>(canvas, { ...config, options: { ...config.options, animation: false } });
    return picture.summary;
  }

  clear(): void {
    this.last = null;
    this.chart?.destroy();
    this.chart = null;
    document.getElementById('figure-m-roofline')?.setAttribute('hidden', '');
  }
}
