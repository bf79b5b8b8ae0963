/** Which lines of a full grid a file keeps: those that interpolation between the others does not reproduce. */
import { knotsOf, type Grid } from '../grid.js';

/** Fibres along an axis that a line is judged by. */
const FIBRES = 500;
/** Mean |log error| below which a line is left out even where there is room. */
const NEGLIGIBLE = 0.002;

/**
 * Lists the lines to keep. A line leaves while the grid has more than `mostKnots`, or while it is reproduced to within
 * a negligible error; the one that costs least accuracy a knot saved leaves first. First and last lines stay.
 */
export function thinLines(grid: Grid, mostKnots: number): number[][] {
  const kept = grid.lines.map((line) => line.map((_, i) => i));
  const errors = new Map<string, number>();
  for (;;) {
    const knots = knotsOf(kept);
    let best: { axis: number; at: number; cost: number; harm: number } | null = null;
    for (const [axis, list] of kept.entries())
      for (let at = 1; at + 1 < list.length; at++) {
        const [before, here, after] = [list[at - 1]!, list[at]!, list[at + 1]!];
        const harm =
          gapError(grid, axis, before, after, errors) -
          gapError(grid, axis, before, here, errors) -
          gapError(grid, axis, here, after, errors);
        const cost = harm / grid.lines[axis]!.length / (knots / list.length);
        if (!best || cost < best.cost) best = { axis, at, cost, harm };
      }
    if (!best || (knots <= mostKnots && best.harm > NEGLIGIBLE)) break;
    kept[best.axis]!.splice(best.at, 1);
  }
  return kept.map((list, axis) => list.map((i) => grid.lines[axis]![i]!));
}

/** Sum over the lines between two of the mean error with which these two reproduce them. */
function gapError(grid: Grid, axis: number, before: number, after: number, known: Map<string, number>): number {
  if (after - before < 2) return 0;
  const key = `${axis}:${before}:${after}`;
  const cached = known.get(key);
  if (cached !== undefined) return cached;
  const line = grid.lines[axis]!;
  const inner = knotsOf(grid.lines.slice(axis + 1));
  const fibres = grid.values.length / line.length;
  const count = Math.min(fibres, FIBRES);
  let sum = 0;
  for (let f = 0; f < count; f++) {
    // A stride that shares no factor with the axes would be ideal; a fraction with an odd remainder does.
    const fibre = Math.floor(((f + 0.5) * fibres) / count);
    const start = Math.floor(fibre / inner) * inner * line.length + (fibre % inner);
    const at = (i: number): number => grid.values[start + i * inner]!;
    for (let i = before + 1; i < after; i++) {
      const share = Math.log(line[i]! / line[before]!) / Math.log(line[after]! / line[before]!);
      sum += Math.abs(at(i) - at(before) * (1 - share) - at(after) * share);
    }
  }
  known.set(key, sum / count);
  return sum / count;
}
