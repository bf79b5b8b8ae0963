/// <reference lib="dom" />
/**
 * Pictures as PNG: chart.js on @napi-rs/canvas, whose binary comes with its package and needs no system library. The
 * font comes with a package, too, so that the same numbers give the same bytes on machines with other fonts.
 */
import { createRequire } from 'node:module';
import { Chart, registerables } from 'chart.js';
import { createCanvas, GlobalFonts } from '@napi-rs/canvas';
import type { Picture } from './picture.js';
import { LIGHT, type Theme } from './theme.js';

export const WIDTH = 1100;
export const HEIGHT = 660;

const FAMILY = 'lla-sim Noto Sans';
const THEME: Theme = { ...LIGHT, font: FAMILY };

let ready = false;

function prepare(): void {
  if (ready) return;
  Chart.register(...registerables);
  const { resolve } = createRequire(import.meta.url);
  for (const weight of [400, 700]) {
    if (
      !GlobalFonts.registerFromPath(
        resolve(`@fontsource/noto-sans/files/noto-sans-latin-${weight}-normal.woff2`),
        FAMILY,
      )
    )
      throw new Error(`the font of pictures (weight ${weight}) cannot be read`);
  }
  ready = true;
}

/** Draws a picture. @returns the bytes of a PNG of WIDTH × HEIGHT pixels */
export function png(picture: Picture): Buffer {
  prepare();
  const canvas = createCanvas(WIDTH, HEIGHT);
  // chart.js asks for the canvas of a browser; this one has the methods that it calls.
  const chart = new Chart(canvas as unknown as HTMLCanvasElement, picture.chart(THEME));
  const bytes = canvas.toBuffer('image/png');
  chart.destroy();
  return bytes;
}
