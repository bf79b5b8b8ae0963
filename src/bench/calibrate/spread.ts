/** Spreads the points of a calibration over the shapes that occur, by how much the time of steps depends on them. */
import { CONSTANTS } from '../../cost/constants.js';
import { matern32 } from '../../cost/process.js';
import type { Shape } from '../../../kernels/spec.js';

/**
 * A shape, and how much the variance of steps depends on its price (bench/calibrate/anchors.ts); 0 where it is not
 * known.
 */
export interface Weighted {
  readonly shape: Shape;
  readonly share: number;
}

/** Every shape weighs at least this, relative to the heaviest. */
const LEAST_WEIGHT = 1e-4;
/**
 * Shapes tell about each other over about so many octaves: what the fit assumes before it has data (cost/fit/gp.ts).
 */
const LENGTH_OCTAVES = CONSTANTS.lengthPrior.value;
/** Kernels are not smooth (tiles, splits, caches): the nearest neighbour explains no more of the variance than this. */
const FROM_NEIGHBOUR = 0.75;
/** So many of the heaviest candidates are considered; others are measured when those are. */
const CONSIDERED = 300;

/** Coordinates of shapes: log2(1 + value) of every field. */
function coordinates(shapes: readonly Shape[]): Float64Array[] {
  const fields = [...new Set(shapes.flatMap((s) => Object.keys(s)))].sort();
  return shapes.map((s) => Float64Array.from(fields, (f) => Math.log2(1 + (s[f] ?? 0))));
}

/** Share of a shape's variance that is left when another is measured: 0 for the same, 1 far away. */
function left(a: Float64Array, b: Float64Array): number {
  let squared = 0;
  for (let i = 0; i < a.length; i++) squared += (a[i]! - b[i]!) ** 2;
  return squared === 0 ? 0 : 1 - FROM_NEIGHBOUR * matern32(squared / LENGTH_OCTAVES ** 2) ** 2;
}

/**
 * Index of the candidate that tells most about the others: measured next, it lowers most the variance of all
 * candidates' prices, by their weights, as far as each follows from the nearest measured shape.
 */
export function mostTelling(measured: readonly Shape[], candidates: readonly Weighted[]): number {
  const heaviest = candidates.reduce((most, { share }) => Math.max(most, share), Number.MIN_VALUE);
  const weights = candidates.map(({ share }) => Math.max(LEAST_WEIGHT, share / heaviest));
  const considered = weights
    .map((_, i) => i)
    .sort((a, b) => weights[b]! - weights[a]! || a - b)
    .slice(0, CONSIDERED);
  const points = coordinates([...considered.map((i) => candidates[i]!.shape), ...measured]);
  const done = points.splice(considered.length);
  const before = points.map((p) => done.reduce((least, d) => Math.min(least, left(p, d)), 1));
  const lowered = points.map((point) =>
    points.reduce((sum, other, j) => {
      const gain = before[j]! - left(point, other);
      return gain > 0 ? sum + weights[considered[j]!]! * gain : sum;
    }, 0),
  );
  return considered[lowered.indexOf(Math.max(...lowered))] ?? 0;
}
