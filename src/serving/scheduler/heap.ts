import { lengthened } from './requests.js';

/** Whole numbers by (key, tie), the smallest first. Storage grows; nothing is allocated for an item. */
export class Heap {
  private keys = new Float64Array(64);
  private ties = new Float64Array(64);
  private items = new Int32Array(64);
  size = 0;

  /** Key, tie and number of the first; without one they mean nothing. */
  get key(): number {
    return this.keys[0]!;
  }
  get tie(): number {
    return this.ties[0]!;
  }
  get first(): number {
    return this.items[0]!;
  }

  push(key: number, tie: number, item: number): void {
    if (this.size === this.items.length) this.grow();
    this.rise(this.size++, key, tie, item);
  }

  pop(): void {
    this.removeAt(0);
  }

  remove(item: number): void {
    const at = this.items.subarray(0, this.size).indexOf(item);
    if (at >= 0) this.removeAt(at);
  }

  private removeAt(hole: number): void {
    const last = --this.size;
    if (hole === last) return;
    const [key, tie, item] = [this.keys[last]!, this.ties[last]!, this.items[last]!];
    let at = hole;
    for (let child = 2 * at + 1; child < last; child = 2 * at + 1) {
      if (child + 1 < last && this.isBefore(child + 1, this.keys[child]!, this.ties[child]!)) child++;
      if (!this.isBefore(child, key, tie)) break;
      this.set(at, this.keys[child]!, this.ties[child]!, this.items[child]!);
      at = child;
    }
    this.rise(at, key, tie, item);
  }

  private rise(from: number, key: number, tie: number, item: number): void {
    let at = from;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (this.isBefore(parent, key, tie)) break;
      this.set(at, this.keys[parent]!, this.ties[parent]!, this.items[parent]!);
      at = parent;
    }
    this.set(at, key, tie, item);
  }

  private isBefore(at: number, key: number, tie: number): boolean {
    const own = this.keys[at]!;
    return own < key || (own === key && this.ties[at]! < tie);
  }

  private set(at: number, key: number, tie: number, item: number): void {
    this.keys[at] = key;
    this.ties[at] = tie;
    this.items[at] = item;
  }

  private grow(): void {
    this.keys = lengthened(this.keys, 2 * this.size);
    this.ties = lengthened(this.ties, 2 * this.size);
    this.items = lengthened(this.items, 2 * this.size);
  }
}
