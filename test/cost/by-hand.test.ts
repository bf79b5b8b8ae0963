/** The example of docs/cost-model.md, and its table of constants: recomputed here from the carried file. */
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { CONSTANTS } from '../../src/cost/constants.js';
import { interpolateBy } from '../../src/stacks/grid.js';
import { unpack } from '../../src/stacks/pack.js';
import { StackPredictor } from '../../src/stacks/predict.js';
import { stackFileSchema } from '../../src/stacks/stack-schema.js';

const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');

it('the page works one time out by hand, as the program does', () => {
  const file = stackFileSchema.parse(JSON.parse(read('calibrations/stacks/h100-vllm.json')));
  const { law, axes, residuals, widths } = file.tables.find((t) => t.op === 'product')!;
  const [rows, inner, columns] = [9, 2048, 11264];
  const bytes = 2 * (rows * inner + inner * columns + rows * columns);
  const moving = bytes / (law.bandwidthShare * 3.35e12);
  const computing = (2 * rows * inner * columns) / (law.peakShare * 989e12);
  const lawSeconds = law.floorSeconds + (moving ** 4 + computing ** 4) ** 0.25;
  const grid = unpack(residuals);
  const g = interpolateBy(
    axes.map((a) => a.knots),
    [rows, columns, inner],
    (i) => grid[i]!,
  );
  const seconds = lawSeconds * Math.exp(g);
  const points = widths.find((w) => lawSeconds <= w.belowSeconds)!.halfWidth;
  const unmeasured = axes.filter((a, i) => ![...a.knots, ...a.between].includes([rows, columns, inner][i]!));
  expect(unmeasured.map((a) => a.name)).toEqual(['columns']);
  const [off] = unmeasured;
  const lines = [...off!.knots, ...off!.between];
  const [below, above] = [Math.max(...lines.filter((l) => l < columns)), Math.min(...lines.filter((l) => l > columns))];
  const share = (2 * Math.min(Math.log(columns / below), Math.log(above / columns))) / Math.log(above / below);
  const half = points + share * (off!.offLine - points);
  const us = (s: number): string => (s * 1e6).toFixed(2);
  const ends = `${us(seconds * Math.exp(-half))} to ${us(seconds * Math.exp(half))}`;
  expect(read('docs/cost-model.md')).toContain(
    `bytes       2·(9·2048 + 2048·11264 + 9·11264)          = ${bytes}
moving      ${bytes} / (${law.bandwidthShare.toFixed(4)} · 3.35e12)          = ${us(moving)} µs
computing   2·9·2048·11264 / (${law.peakShare.toFixed(4)} · 989e12)      = ${us(computing)} µs
law         ${us(law.floorSeconds)} + (${us(moving)}⁴ + ${us(computing)}⁴)^¼               = ${us(lawSeconds)} µs
time        ${us(lawSeconds)} · exp(${g.toFixed(4)})                       = ${us(seconds)} µs
half-width  points ${points} + ${share.toFixed(2)} · (columns ${off!.offLine} − points) → ${ends} µs
`,
  );
  const price = new StackPredictor(file).predict('product', { rows, columns, inner })!;
  expect(price.estimate / seconds).toBeCloseTo(1, 9);
  expect(price.low / (seconds * Math.exp(-half))).toBeCloseTo(1, 9);
  expect(price.high / (seconds * Math.exp(half))).toBeCloseTo(1, 9);
});

it('the assumed numbers are few, and each has a unit, a meaning and a source', () => {
  const all = Object.entries(CONSTANTS);
  expect(all.length).toBeLessThanOrEqual(40);
  for (const [name, { value, unit, meaning, source }] of all) {
    expect(Number.isFinite(value), name).toBe(true);
    for (const words of [unit, meaning, source]) expect(words.trim(), name).not.toBe('');
  }
  expect(read('docs/cost-model.md').split(/\s+/).length).toBeLessThanOrEqual(1200);
});
