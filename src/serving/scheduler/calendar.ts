/**
 * What is due at which iteration of a replica, as lists in a ring: a sequence's last token, its next knot of the price
 * table. Adding and removing take constant time, and an iteration looks only at what is due.
 */

const RING = 4096;
const NONE = -1;

export class Calendar {
  private readonly heads = new Int32Array(RING).fill(NONE);
  private next = new Int32Array(64).fill(NONE);
  private previous = new Int32Array(64).fill(NONE);
  /** Iteration at which an item is due; −1 where it is not in the calendar. */
  private due = new Float64Array(64).fill(NONE);
  /** Place in the ring at which it is listed. */
  private place = new Int32Array(64).fill(NONE);

  /** @param now the current iteration; `due` is later */
  add(item: number, due: number, now: number): void {
    if (item >= this.due.length) this.grow(item);
    this.due[item] = due;
    this.list(item, Math.min(due, now + RING - 1));
  }

  remove(item: number): void {
    if (item >= this.due.length || this.due[item]! < 0) return;
    this.unlist(item);
    this.due[item] = NONE;
  }

  /**
   * Takes one item that is due at iteration `now`, or −1 where none is left. Called until then at every iteration.
   */
  take(now: number): number {
    const place = now % RING;
    for (;;) {
      const item = this.heads[place]!;
      if (item === NONE) return NONE;
      this.unlist(item);
      if (this.due[item]! <= now) {
        this.due[item] = NONE;
        return item;
      }
      // Due more than a round later.
      this.list(item, Math.min(this.due[item]!, now + RING - 1));
    }
  }

  private list(item: number, iteration: number): void {
    const place = iteration % RING;
    const head = this.heads[place]!;
    this.place[item] = place;
    this.previous[item] = NONE;
    this.next[item] = head;
    if (head !== NONE) this.previous[head] = item;
    this.heads[place] = item;
  }

  private unlist(item: number): void {
    const [before, after] = [this.previous[item]!, this.next[item]!];
    if (before === NONE) this.heads[this.place[item]!] = after;
    else this.next[before] = after;
    if (after !== NONE) this.previous[after] = before;
  }

  private grow(item: number): void {
    const length = Math.max(2 * this.due.length, item + 1);
    const longer = <T extends Int32Array | Float64Array>(old: T, into: T): T => {
      into.fill(NONE);
      into.set(old);
      return into;
    };
    this.next = longer(this.next, new Int32Array(length));
    this.previous = longer(this.previous, new Int32Array(length));
    this.place = longer(this.place, new Int32Array(length));
    this.due = longer(this.due, new Float64Array(length));
  }
}
