/** Ranges that are halved until what is looked for is found. */

/** The ends of a range after so many halvings. @param isBelow whether what is sought lies above a number */
export function halved(
  range: readonly [low: number, high: number],
  times: number,
  isBelow: (x: number) => boolean,
): [low: number, high: number] {
  let [low, high] = range;
  for (let i = 0; i < times; i++) {
    const middle = (low + high) / 2;
    if (isBelow(middle)) low = middle;
    else high = middle;
  }
  return [low, high];
}

/** The whole number nearest to `to` for which something holds, as it does for `from`. */
export function furthest(from: number, to: number, holds: (n: number) => boolean): number {
  let [found, beyond] = [from, to];
  while (Math.abs(beyond - found) > 1) {
    const middle = Math.floor((found + beyond) / 2);
    if (holds(middle)) found = middle;
    else beyond = middle;
  }
  return found;
}
