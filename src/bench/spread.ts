/**
 * Spreads the points of a calibration over the shapes that occur: farthest-point (maximin) choice in log2 of the
 * dimensions.
 */
import type { Shape } from '../kernels/spec.js';

/** Coordinates of shapes: log2(1 + value) of every field, scaled to the range that the candidates span. */
function coordinates(shapes: readonly Shape[]): number[][] {
  const fields = [...new Set(shapes.flatMap((s) => Object.keys(s)))].sort();
  const raw = shapes.map((s) => fields.map((f) => Math.log2(1 + (s[f] ?? 0))));
  const spans = fields.map((_, i) => {
    const column = raw.map((r) => r[i] as number);
    const low = column.reduce((a, b) => Math.min(a, b), Infinity);
    return { low, width: column.reduce((a, b) => Math.max(a, b), -Infinity) - low };
  });
  return raw.map((r) =>
    r.map((x, i) => {
      const { low, width } = spans[i] as { low: number; width: number };
      return width > 0 ? (x - low) / width : 0;
    }),
  );
}

const distance = (a: readonly number[], b: readonly number[]): number =>
  Math.hypot(...a.map((x, i) => x - (b[i] as number)));

/**
 * Index of the candidate farthest from all measured shapes; with none measured, of the one in the middle. Distances to
 * candidates for which `preferred` holds count half more: real schedules contain these.
 */
export function farthest(
  measured: readonly Shape[],
  candidates: readonly Shape[],
  preferred: (index: number) => boolean = () => false,
): number {
  const points = coordinates([...candidates, ...measured]);
  const done = points.slice(candidates.length);
  const centre = Array.from({ length: points[0]?.length ?? 0 }, () => 0.5);
  let best = 0;
  let bestScore = -Infinity;
  candidates.forEach((_, i) => {
    const point = points[i] as number[];
    const gap =
      done.length === 0
        ? -distance(point, centre)
        : done.reduce((least, d) => Math.min(least, distance(point, d)), Infinity) * (preferred(i) ? 1.5 : 1);
    if (gap > bestScore) {
      best = i;
      bestScore = gap;
    }
  });
  return best;
}
