/**
 * A schedule without a loop over sequences: each takes all loops of a token, so what they have in common is counted.
 * Those that need a block now are found by (length − iteration) modulo the block size, which does not change while they
 * decode; those that end, or come to the next knot of the price, are in calendars.
 */
import { lengthened, NONE, STATE } from './requests.js';
import { Scheduler } from './scheduler.js';

/** Iterations of a round of the calendar. */
const RING = 4096;

/**
 * What is due at which iteration of a replica, as lists in a ring: a sequence's last token, its next knot of the price
 * table. Adding and removing take constant time, and an iteration looks only at what is due.
 */
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
    this.next = lengthened(this.next, length, NONE);
    this.previous = lengthened(this.previous, length, NONE);
    this.place = lengthened(this.place, length, NONE);
    this.due = lengthened(this.due, length, NONE);
  }
}

export class CountedScheduler extends Scheduler {
  private readonly phases = new Int32Array(this.options.blockTokens);
  private readonly ends = new Calendar();
  private readonly crossings = new Calendar();

  get decoding(): number {
    return this.batch.size;
  }

  protected needed(): number {
    this.cross();
    return this.phases[this.phaseOf(0)]!;
  }

  protected beginTokens(): void {
    if (this.batch.size > 0) this.pool.take(this.phases[this.phaseOf(0)]!);
  }

  protected blocksToBegin(_slot: number, length: number): number {
    return this.blocksFor(length + 1);
  }

  protected decode(slot: number, length: number, now: boolean): void {
    const { batch, requests } = this;
    const { iteration, knots } = batch;
    if (now) this.pool.take(this.blocksFor(length + 1));
    const segment = batch.add(length);
    requests.state[slot] = STATE.decode;
    requests.computed[slot] = length;
    requests.began[slot] = iteration;
    requests.segment[slot] = segment;
    if (length < this.options.capTokens) this.phases[this.phaseOf(length)]!++;
    this.ends.add(slot, iteration + requests.output[slot]! - requests.emitted[slot]!, iteration);
    if (segment + 1 < knots.length) this.crossings.add(slot, iteration + knots[segment + 1]! - length, iteration);
    if (now || batch.paused) this.listener.joined?.(slot);
  }

  protected stop(slot: number): number {
    const { batch, requests } = this;
    const steps = batch.iteration - requests.began[slot]!;
    const length = requests.computed[slot]! + steps;
    const segment = requests.segment[slot]!;
    requests.computed[slot] = length;
    requests.emitted[slot]! += steps;
    this.crossings.remove(slot);
    this.ends.remove(slot);
    batch.remove(length, segment);
    // Its cache was not full at its last knot: it is counted among those that need blocks.
    if (batch.knots[segment]! < this.options.capTokens) this.phases[this.phaseOf(length)]!--;
    return this.blocksFor(length);
  }

  override written(slot: number): number {
    const { batch, requests } = this;
    const steps = requests.state[slot] === STATE.decode ? batch.iteration - requests.began[slot]! : 0;
    return requests.emitted[slot]! + steps;
  }

  protected override interrupt(slot: number): void {
    this.listener.left?.(slot);
  }

  protected endTokens(): void {
    const { batch, ends } = this;
    this.listener.stepped?.(batch.size);
    batch.iteration++;
    for (let slot = ends.take(batch.iteration); slot !== NONE; slot = ends.take(batch.iteration)) this.complete(slot);
  }

  /** Sequences whose length has come to the next knot. */
  private cross(): void {
    const { batch, requests, crossings } = this;
    const { iteration, knots } = batch;
    for (let slot = crossings.take(iteration); slot !== NONE; slot = crossings.take(iteration)) {
      const length = requests.computed[slot]! + iteration - requests.began[slot]!;
      const segment = requests.segment[slot]!;
      batch.advance(length, segment);
      requests.segment[slot] = segment + 1;
      if (length === this.options.capTokens) this.phases[this.phaseOf(length)]!--;
      if (segment + 2 < knots.length) crossings.add(slot, iteration + knots[segment + 2]! - length, iteration);
    }
  }

  private phaseOf(length: number): number {
    const { blockTokens } = this.options;
    const phase = (length - this.batch.iteration) % blockTokens;
    return phase < 0 ? phase + blockTokens : phase;
  }
}
