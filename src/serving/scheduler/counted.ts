/**
 * A schedule without a loop over sequences: each takes all loops of a token, so what they have in common is counted.
 * Those that need a block now are found by (length − iteration) modulo the block size, which does not change while they
 * decode; those that end, or come to the next knot of the price, are in calendars.
 */
import { Calendar } from './calendar.js';
import { STATE } from './requests.js';
import { NONE, Scheduler } from './scheduler.js';

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
