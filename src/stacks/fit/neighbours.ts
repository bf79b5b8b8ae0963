/** Nearest points in a few dimensions: a k-d tree. Our own, since a search has to leave points out by a function. */

/** Points in a leaf, searched one by one. */
const LEAF = 16;

export class Neighbours {
  readonly #order: Int32Array;

  constructor(readonly points: readonly Float64Array[]) {
    this.#order = Int32Array.from(points.keys());
    this.#build(0, points.length, 0);
  }

  #build(from: number, to: number, axis: number): void {
    if (to - from <= LEAF) return;
    const { points } = this;
    this.#order.subarray(from, to).sort((a, b) => points[a]![axis]! - points[b]![axis]!);
    const middle = (from + to) >> 1;
    const next = (axis + 1) % points[0]!.length;
    this.#build(from, middle, next);
    this.#build(middle + 1, to, next);
  }

  /** Indices of the `k` nearest points that `skip` lets through, nearest first. */
  nearest(target: Float64Array, k: number, skip?: (index: number) => boolean): number[] {
    const found: { readonly index: number; readonly distance: number }[] = [];
    const farthest = (): number => found[k - 1]?.distance ?? Infinity;
    const look = (index: number): void => {
      const point = this.points[index]!;
      let distance = 0;
      for (let j = 0; j < target.length; j++) distance += (point[j]! - target[j]!) ** 2;
      if (distance >= farthest() || skip?.(index)) return;
      found.splice(found.findLastIndex((other) => other.distance <= distance) + 1, 0, { index, distance });
      if (found.length > k) found.pop();
    };
    const walk = (from: number, to: number, axis: number): void => {
      if (to - from <= LEAF) {
        for (let i = from; i < to; i++) look(this.#order[i]!);
        return;
      }
      const middle = (from + to) >> 1;
      const gap = target[axis]! - this.points[this.#order[middle]!]![axis]!;
      const sides = [[from, middle] as const, [middle + 1, to] as const];
      const [near, far] = gap < 0 ? sides : sides.toReversed();
      const next = (axis + 1) % target.length;
      walk(...near!, next);
      look(this.#order[middle]!);
      if (gap * gap < farthest()) walk(...far!, next);
    };
    walk(0, this.#order.length, 0);
    return found.map(({ index }) => index);
  }
}
