/** Nearest points in a few dimensions: a k-d tree. Our own, since a search has to leave points out by a function. */

/** Points in a leaf, searched one by one. */
const LEAF = 16;

export class Neighbours {
  readonly #order: Int32Array;

  /** @param x coordinates, `n` rows of `d` */
  constructor(
    readonly x: Float64Array,
    readonly d: number,
  ) {
    this.#order = Int32Array.from({ length: x.length / d }, (_, i) => i);
    this.#build(0, this.#order.length, 0);
  }

  #build(from: number, to: number, axis: number): void {
    if (to - from <= LEAF) return;
    const part = this.#order.subarray(from, to);
    part.sort((a, b) => this.x[a * this.d + axis]! - this.x[b * this.d + axis]!);
    const middle = (from + to) >> 1;
    const next = (axis + 1) % this.d;
    this.#build(from, middle, next);
    this.#build(middle + 1, to, next);
  }

  /** Indices of the `k` nearest points that `skip` lets through, nearest first. */
  nearest(target: Float64Array, k: number, skip?: (index: number) => boolean): Int32Array {
    const found = new Int32Array(k).fill(-1);
    const distances = new Float64Array(k).fill(Infinity);
    const look = (index: number): void => {
      let distance = 0;
      for (let j = 0; j < this.d; j++) distance += (this.x[index * this.d + j]! - target[j]!) ** 2;
      if (distance >= distances[k - 1]! || skip?.(index)) return;
      let at = k - 1;
      for (; at > 0 && distances[at - 1]! > distance; at--) {
        distances[at] = distances[at - 1]!;
        found[at] = found[at - 1]!;
      }
      distances[at] = distance;
      found[at] = index;
    };
    const walk = (from: number, to: number, axis: number): void => {
      if (to - from <= LEAF) {
        for (let i = from; i < to; i++) look(this.#order[i]!);
        return;
      }
      const middle = (from + to) >> 1;
      const gap = target[axis]! - this.x[this.#order[middle]! * this.d + axis]!;
      const next = (axis + 1) % this.d;
      const [near, far] = gap < 0 ? [0, 1] : [1, 0];
      const side = (which: number): void => (which === 0 ? walk(from, middle, next) : walk(middle + 1, to, next));
      side(near);
      look(this.#order[middle]!);
      if (gap * gap < distances[k - 1]!) side(far);
    };
    walk(0, this.#order.length, 0);
    const count = found.indexOf(-1);
    return count < 0 ? found : found.subarray(0, count);
  }
}
