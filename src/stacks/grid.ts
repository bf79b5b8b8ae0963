/** Values on a regular grid, and interpolation between them over logarithms of the sizes. */

export interface Grid {
  /** Sorted sizes, one list an axis. */
  readonly lines: readonly (readonly number[])[];
  /** Row-major; the last axis runs fastest. */
  readonly values: Float64Array;
}

/** Number of knots of a grid with these lines. */
export const knotsOf = (lines: readonly (readonly unknown[])[]): number => lines.reduce((n, l) => n * l.length, 1);

/** The lines on both sides of a size, and the share of the way from one to the other in log size. */
export interface Place {
  readonly below: number;
  readonly above: number;
  readonly share: number;
}

/** `absent`: a line that is passed over. Sizes outside are taken to the nearest line. */
export function placeOf(line: readonly number[], size: number, absent = -1): Place {
  let below = -1;
  let above = -1;
  for (let i = 0; i < line.length && above < 0; i++) {
    if (i === absent) continue;
    if (line[i]! <= size) below = i;
    else above = i;
  }
  if (below < 0) return { below: above, above, share: 0 };
  if (above < 0 || line[below] === size) return { below, above: below, share: 0 };
  return { below, above, share: Math.log(size / line[below]!) / Math.log(line[above]! / line[below]!) };
}

/** The value at `sizes`, with knots' values from a function. `without` treats one line of one axis as absent. */
export const interpolateBy = (
  lines: readonly (readonly number[])[],
  sizes: readonly number[],
  valueOf: (index: number) => number,
  without?: { readonly axis: number; readonly line: number },
): number =>
  interpolateAt(
    lines,
    lines.map((line, axis) => placeOf(line, sizes[axis]!, without?.axis === axis ? without.line : -1)),
    valueOf,
  );

/** The value at a place of each axis, multilinear in the logarithms of the sizes. @param valueOf a knot */
export function interpolateAt(
  lines: readonly (readonly number[])[],
  places: readonly Place[],
  valueOf: (index: number) => number,
): number {
  // Corners of the cell: bit `axis` of a corner says which of the two lines it lies on.
  let sum = 0;
  for (let corner = 0; corner < 1 << lines.length; corner++) {
    let weight = 1;
    let index = 0;
    for (let axis = 0; axis < lines.length && weight > 0; axis++) {
      const { below, above, share } = places[axis]!;
      const onAbove = (corner >> axis) % 2 === 1;
      weight *= onAbove ? share : 1 - share;
      index = index * lines[axis]!.length + (onAbove ? above : below);
    }
    if (weight > 0) sum += weight * valueOf(index);
  }
  return sum;
}

/** The sizes of every knot, in the order of the values. */
export function knotSizes(lines: readonly (readonly number[])[]): number[][] {
  let rows: number[][] = [[]];
  for (const line of lines) rows = rows.flatMap((row) => line.map((size) => [...row, size]));
  return rows;
}
