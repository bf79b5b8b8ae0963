/**
 * One replica: a scheduler as vLLM's (v1/core/sched/scheduler.py, 0.19), without a loop over sequences. Every iteration
 * each decoding sequence gets a token; prompts take the rest of the token budget, in chunks. With `promptsFirst` as
 * SGLang's (srt/managers/scheduler.py, 0.5): prompts that have room take an iteration of their own, and sequences
 * wait. What sequences have in
 * common is counted: those that need a block now are found by (length − iteration) modulo the block size, which does
 * not change while they decode; those that end, or come to the next knot of the price, are in calendars.
 */
import { MixedBatch, type IterationPricer } from './batch.js';
import { BlockPool } from './blocks.js';
import { Calendar } from './calendar.js';
import type { Metrics } from './metrics.js';
import { STATE, type Requests } from './requests.js';
import { blocksOf, type ReplicaOptions } from './options.js';
import { Prefixes } from './prefixes.js';
import type { WaitingQueue } from './waiting.js';

const NONE = -1;
/** What a replica tells its surroundings. */
export interface Surroundings {
  /** The last token of a request is out. Its place is free afterwards. */
  completed(slot: number, now: number): void;
  /** The prompt of a request is done, and another replica decodes. */
  prefilled(slot: number, now: number): void;
}

export class Replica {
  readonly pool: BlockPool;
  readonly batch: MixedBatch;
  private readonly prefixes: Prefixes;
  busy = false;
  /** Requests that it has, waiting ones included. */
  outstanding = 0;
  private running = 0;
  private tail = NONE;
  /** A prompt of which a part is done. */
  private partial = NONE;
  private readonly phases: Int32Array;
  private readonly ends = new Calendar();
  private readonly crossings = new Calendar();
  private readonly chunkSlots: Int32Array;
  private began = 0;
  /** When sequences had their last token, where iterations of prompts alone came since; else −1. */
  private pausedSince = -1;
  /** Sequences that decode for the first time, and had their last token at a time of their own. */
  private readonly arrived: number[] = [];

  constructor(
    readonly index: number,
    private readonly options: ReplicaOptions,
    private readonly requests: Requests,
    readonly waiting: WaitingQueue,
    private readonly pricer: IterationPricer,
    private readonly metrics: Metrics,
    private readonly around: Surroundings,
  ) {
    const mostChunks = Math.min(options.maxNumSeqs, options.maxNumBatchedTokens) + 1;
    this.pool = new BlockPool(options.blocks, options.unitTokens / options.blockTokens);
    this.prefixes = new Prefixes(options, requests, this.pool, metrics);
    this.batch = new MixedBatch(pricer.knots, mostChunks);
    this.chunkSlots = new Int32Array(mostChunks);
    this.phases = new Int32Array(options.blockTokens);
  }

  /** Sequences that are being worked on. */
  get runningCount(): number {
    return this.running;
  }

  /**
   * Begins an iteration.
   * @returns its seconds, or −1 where there is nothing to do
   */
  begin(now: number): number {
    const { batch, metrics, options } = this;
    batch.clearChunks();
    batch.paused = options.promptsFirst;
    let limit = NONE;
    if (options.promptsFirst) {
      const left = this.continuePrompt(now, options.maxNumBatchedTokens);
      limit = left < 0 ? 0 : this.admit(now, left, limit);
    }
    if (batch.chunks.count === 0) {
      batch.paused = false;
      this.cross();
      const preempted = this.growSequences(now);
      const left = this.continuePrompt(now, options.maxNumBatchedTokens - batch.size);
      limit = preempted || left < 0 ? 0 : this.admit(now, left, limit);
    }
    if (batch.size + batch.chunks.count === 0) return NONE;
    const seconds = this.pricer.seconds(batch);
    this.busy = true;
    this.began = now;
    metrics.iterations++;
    metrics.busySeconds += seconds;
    metrics.sequenceSeconds += seconds * this.running;
    if (this.running > metrics.mostSequences) metrics.mostSequences = this.running;
    const { used } = this.pool;
    metrics.blockSeconds += seconds * used;
    if (used > metrics.mostBlocks) metrics.mostBlocks = used;
    const waiting = this.waiting.size;
    if (waiting > 0 && limit >= 0) metrics.limitSeconds[limit]! += seconds * waiting;
    metrics.timeline.add(now + seconds, seconds, this.running, waiting, used);
    return seconds;
  }

  /** Ends the iteration that `begin` began. */
  end(now: number): void {
    const { batch, requests } = this;
    this.busy = false;
    if (!batch.paused) this.endStep(now);
    else if (this.pausedSince < 0) this.pausedSince = this.began;
    const { chunks } = batch;
    for (let i = 0; i < chunks.count; i++) {
      const slot = this.chunkSlots[i]!;
      this.endChunk(slot, chunks.tokens[i]!, now);
      if (batch.paused && requests.state[slot] === STATE.decode) this.arrived.push(slot);
    }
  }

  /** Every decoding sequence has a token. */
  private endStep(now: number): void {
    const { batch, requests, metrics } = this;
    const gap = now - (this.pausedSince < 0 ? this.began : this.pausedSince);
    this.pausedSince = -1;
    let together = batch.size;
    for (const slot of this.arrived) {
      metrics.itl.add(now - requests.lastToken[slot]!);
      together--;
    }
    this.arrived.length = 0;
    if (together > 0) metrics.itl.add(gap, together);
    batch.iteration++;
    for (let slot = this.ends.take(batch.iteration); slot !== NONE; slot = this.ends.take(batch.iteration))
      this.complete(slot, now);
  }

  /** Sequences whose length has come to the next knot. */
  private cross(): void {
    const { batch, requests, crossings } = this;
    const { iteration, knots } = batch;
    for (let slot = crossings.take(iteration); slot !== NONE; slot = crossings.take(iteration)) {
      const length = this.lengthOf(slot);
      const segment = requests.segment[slot]!;
      batch.advance(length, segment);
      requests.segment[slot] = segment + 1;
      if (length === this.options.capTokens) this.phases[this.phaseOf(length)]!--;
      if (segment + 2 < knots.length) crossings.add(slot, iteration + knots[segment + 2]! - length, iteration);
    }
  }

  /** Takes the blocks that decoding sequences need. @returns true where some had to be preempted */
  private growSequences(now: number): boolean {
    const { batch, pool, phases } = this;
    const phase = this.phaseOf(0);
    let preempted = false;
    while (phases[phase]! > pool.available) {
      this.preempt(this.victim(), now);
      preempted = true;
    }
    if (batch.size > 0) pool.take(phases[phase]!);
    return preempted;
  }

  /** Works on with the prompt that is partly done. @returns tokens left of the budget, −1 where it was preempted */
  private continuePrompt(now: number, budget: number): number {
    const { requests, pool, partial } = this;
    if (partial === NONE || budget <= 0) return budget;
    const done = requests.computed[partial]!;
    const tokens = Math.min(requests.target[partial]! - done, budget);
    const blocks = this.blocksFor(done + tokens) - this.blocksFor(done);
    if (blocks > pool.available) {
      this.preempt(partial, now);
      return -1;
    }
    pool.take(blocks);
    this.addChunk(partial, tokens, done);
    return budget - tokens;
  }

  /**
   * Begins requests that wait.
   * @param limit what kept the next one waiting before
   * @returns what keeps the next one waiting, as a number in LIMITS; −1 where none waits
   */
  private admit(now: number, budget: number, limit: number): number {
    const { options, requests, pool, waiting, batch } = this;
    while (waiting.size > 0) {
      if (this.running >= options.maxNumSeqs) return 1;
      if (budget <= 0) return 2;
      const slot = waiting.peek();
      const comes = requests.state[slot] === STATE.transfer;
      // Beside sequences come those that decode at once, and beside prompts no others.
      if (options.promptsFirst && comes === batch.paused) return limit;
      const tokens = requests.target[slot]! + (comes ? 1 : 0);
      const hits = comes ? 0 : this.prefixes.hitsOf(slot, tokens);
      const before = comes ? tokens - 1 : hits * options.unitTokens;
      const whole = tokens - before;
      if (!options.chunkedPrefill && whole > budget && batch.chunks.count > 0) return 2;
      const first = comes ? 0 : options.chunkedPrefill ? Math.min(whole, budget) : whole;
      const shared = hits * pool.unitBlocks;
      const needed = this.blocksFor(comes || options.reserveFullPrompt ? tokens : before + first) - shared;
      if (needed > pool.available - this.prefixes.idleHits(slot, hits)) return 0;
      waiting.pop();
      this.prefixes.useHits(slot, hits);
      pool.take(this.blocksFor(comes ? tokens : before + first) - shared);
      this.append(slot);
      requests.replica[slot] = this.index;
      if (requests.scheduled[slot]! < 0) requests.scheduled[slot] = now;
      if (comes) {
        this.decode(slot, tokens - 1);
        this.arrived.push(slot);
        budget--;
        continue;
      }
      requests.state[slot] = STATE.prefill;
      requests.computed[slot] = before;
      this.addChunk(slot, first, before);
      if (before + first < tokens) this.partial = slot;
      budget -= first;
    }
    return NONE;
  }

  private addChunk(slot: number, tokens: number, before: number): void {
    const { batch, requests } = this;
    this.chunkSlots[batch.chunks.count] = slot;
    batch.addChunk(tokens, before, before + tokens === requests.target[slot]!);
    this.prefixes.nameUnits(slot, before + tokens);
  }

  private endChunk(slot: number, tokens: number, now: number): void {
    const { requests, metrics } = this;
    const done = requests.computed[slot]! + tokens;
    requests.computed[slot] = done;
    if (done < requests.target[slot]!) return;
    if (slot === this.partial) this.partial = NONE;
    if (requests.firstToken[slot]! < 0) requests.firstToken[slot] = now;
    else metrics.itl.add(now - requests.lastToken[slot]!);
    requests.lastToken[slot] = now;
    const emitted = ++requests.emitted[slot]!;
    if (emitted === requests.output[slot]!) {
      this.leave(slot, done);
      this.around.completed(slot, now);
    } else if (this.options.prefillOnly) {
      this.leave(slot, done);
      this.around.prefilled(slot, now);
    } else this.decode(slot, done);
  }

  /** Begins to decode a sequence with `length` cached tokens, in the current iteration. */
  private decode(slot: number, length: number): void {
    const { batch, requests } = this;
    const { iteration, knots } = batch;
    const segment = batch.add(length);
    requests.state[slot] = STATE.decode;
    requests.computed[slot] = length;
    requests.began[slot] = iteration;
    requests.segment[slot] = segment;
    if (length < this.options.capTokens) this.phases[this.phaseOf(length)]!++;
    this.ends.add(slot, iteration + requests.output[slot]! - requests.emitted[slot]!, iteration);
    if (segment + 1 < knots.length) this.crossings.add(slot, iteration + knots[segment + 1]! - length, iteration);
  }

  private complete(slot: number, now: number): void {
    const { requests } = this;
    const length = this.lengthOf(slot);
    this.stopDecoding(slot, length);
    requests.emitted[slot] = requests.output[slot]!;
    requests.lastToken[slot] = now;
    this.leave(slot, length);
    this.around.completed(slot, now);
  }

  private stopDecoding(slot: number, length: number): void {
    this.crossings.remove(slot);
    this.ends.remove(slot);
    this.batch.remove(length, this.requests.segment[slot]!);
    if (this.isGrowing(slot)) this.phases[this.phaseOf(length)]!--;
  }

  /** True where a decoding sequence is counted among those that need blocks: its cache was not full at its last knot. */
  private isGrowing(slot: number): boolean {
    return this.batch.knots[this.requests.segment[slot]!]! < this.options.capTokens;
  }

  /** Gives a sequence's blocks back, and takes it off the running list. */
  private leave(slot: number, length: number): void {
    this.release(slot, length);
    this.unlist(slot);
    this.outstanding--;
  }

  /** The sequence that is preempted: the last one that began, or the least urgent. */
  private victim(): number {
    if (this.options.policy !== 'priority') return this.tail;
    const { requests } = this;
    let victim = this.tail;
    for (let slot = requests.previous[victim]!; slot !== NONE; slot = requests.previous[slot]!) {
      const more = requests.priority[slot]! - requests.priority[victim]!;
      if (more > 0 || (more === 0 && requests.number[slot]! > requests.number[victim]!)) victim = slot;
    }
    return victim;
  }

  /** Takes a sequence's blocks away. It will be computed again, from its prompt and the tokens that it has. */
  private preempt(slot: number, now: number): void {
    const { requests, metrics, batch } = this;
    let length = requests.computed[slot]!;
    if (requests.state[slot] === STATE.decode) {
      length = this.lengthOf(slot);
      this.stopDecoding(slot, length);
      const steps = batch.iteration - requests.began[slot]!;
      requests.emitted[slot]! += steps;
      if (steps > 0) requests.lastToken[slot] = this.pausedSince < 0 ? now : this.pausedSince;
      const first = this.arrived.indexOf(slot);
      if (first >= 0) this.arrived.splice(first, 1);
      requests.target[slot] = requests.prompt[slot]! + requests.emitted[slot]!;
    }
    if (slot === this.partial) this.partial = NONE;
    requests.preemptions[slot]!++;
    this.release(slot, length);
    this.unlist(slot);
    requests.computed[slot] = 0;
    requests.state[slot] = STATE.waiting;
    metrics.preemptions++;
    metrics.recomputedTokens += length;
    this.waiting.putBack(slot);
  }

  private lengthOf(slot: number): number {
    const { requests } = this;
    return requests.computed[slot]! + this.batch.iteration - requests.began[slot]!;
  }

  private phaseOf(length: number): number {
    const { blockTokens } = this.options;
    const phase = (length - this.batch.iteration) % blockTokens;
    return phase < 0 ? phase + blockTokens : phase;
  }

  /** Blocks that hold this many tokens. */
  private blocksFor(tokens: number): number {
    return blocksOf(tokens, this.options);
  }

  private append(slot: number): void {
    const { requests, tail } = this;
    requests.previous[slot] = tail;
    requests.next[slot] = NONE;
    if (tail !== NONE) requests.next[tail] = slot;
    this.tail = slot;
    this.running++;
  }

  private unlist(slot: number): void {
    const { requests } = this;
    const [before, after] = [requests.previous[slot]!, requests.next[slot]!];
    if (before !== NONE) requests.next[before] = after;
    if (after === NONE) this.tail = before;
    else requests.previous[after] = before;
    this.running--;
  }

  private release(slot: number, length: number): void {
    const { prefixes, pool } = this;
    prefixes.nameUnits(slot, length);
    pool.give(this.blocksFor(length) - prefixes.leave(slot) * pool.unitBlocks);
  }
}
