/**
 * Pictures as PNG, by chartjs-node-canvas on @napi-rs/canvas, whose binary comes with its package and needs no system
 * library: the build bundles chartjs-node-canvas so (scripts/node-canvas.mjs), the checkout overrides its `canvas`. The
 * font comes with a package, too, so that the same numbers give the same bytes on machines with other fonts.
 */
import { createRequire } from 'node:module';
import { GlobalFonts } from '@napi-rs/canvas';
import { ChartJSNodeCanvas } from 'chartjs-node-canvas';
import type { Picture } from './picture.js';
import { LIGHT, type Theme } from './theme.js';

export const WIDTH = 1100;
export const HEIGHT = 660;

const FAMILY = 'lla-sim Noto Sans';
const THEME: Theme = { ...LIGHT, font: FAMILY };

let renderer: ChartJSNodeCanvas | undefined;

function prepare(): ChartJSNodeCanvas {
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
  return new ChartJSNodeCanvas({ width: WIDTH, height: HEIGHT });
}

/** Draws a picture. @returns the bytes of a PNG of WIDTH × HEIGHT pixels */
export function png(picture: Picture): Buffer {
  renderer ??= prepare();
  return renderer.renderToBufferSync(picture.chart(THEME));
}
