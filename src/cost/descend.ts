/**
 * Our own: costs have kinks and bounds, and another search would change the digits of every fit that is carried.
 *
 * Coordinate search for the least cost within bounds, in steps that halve from `first` down to `finest` (Hooke & Jeeves
 * 1961 without pattern moves): for a handful of parameters whose costs have kinks or whose gradients cost more than
 * they save.
 */
export function descend(
  start: readonly number[],
  bounds: readonly (readonly [number, number])[],
  finest: number,
  cost: (x: readonly number[]) => number,
  first = 0.5,
): readonly number[] {
  const clamp = (value: number, i: number): number => Math.min(bounds[i]![1], Math.max(bounds[i]![0], value));
  let best: readonly number[] = start.map(clamp);
  let least = cost(best);
  for (let step = first; step > finest;) {
    let moved = false;
    for (let i = 0; i < best.length; i++)
      for (const sign of [1, -1]) {
        const next = best.map((value, j) => (j === i ? clamp(value + sign * step, i) : value));
        const value = cost(next);
        if (value < least - 1e-12) [best, least, moved] = [next, value, true];
      }
    if (!moved) step /= 2;
  }
  return best;
}
