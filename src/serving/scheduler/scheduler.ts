/**
 * The schedule of a server, as vLLM has it (v1/core/sched/scheduler.py, 0.19): every iteration each decoding sequence
 * gets a token; prompts take the rest of the token budget, in chunks; where no block of cache is left, the sequence
 * that began last loses its blocks and is computed again. With `promptsFirst` as SGLang (srt/managers/scheduler.py,
 * 0.5): prompts that have room take an iteration of their own, and sequences wait. With `inTurns` and `promptsRotate`
 * as vllm-rlt (core/scheduler.py, d40afb7): prompts and tokens take iterations in turn, and a prompt that is not done
 * goes behind the others.
 *
 * It is a state machine without a clock: `begin` says what an iteration works on, `end` what comes of it. Two programs
 * drive it, the simulation (replica.ts) and the decoder's serving loop (decoder/serving/loop.ts). How the sequences
 * that decode are held is up to its two kinds: counted (counted.ts), or one by one where tokens take loops of their own
 * (looped.ts).
 */
import { MixedBatch } from './batch.js';
import { BlockPool } from './blocks.js';
import { blocksOf, type ReplicaOptions } from './options.js';
import { Outlook } from './outlook.js';
import { Prefixes } from './prefixes.js';
import type { Counts, Listener } from './listener.js';
import { NONE, STATE, type Requests } from './requests.js';
import { Room } from './room.js';
import type { WaitingQueue } from './waiting.js';

/** Why a request that waits could not begin: places in LIMITS (metrics.ts). */
const [NO_BLOCKS, NO_PLACE, NO_BUDGET] = [0, 1, 2];

export abstract class Scheduler<O extends ReplicaOptions = ReplicaOptions> {
  readonly pool: BlockPool;
  readonly batch: MixedBatch;
  /** Requests that have a place, in the order in which they began. */
  readonly running: number[] = [];
  /** What keeps the next request waiting, as a place in LIMITS (metrics.ts); −1 where none waits. */
  limit = NONE;
  /** Passes of a prompt, and of an iteration: 1 unless tokens take loops of their own. */
  readonly loops: number = 1;
  readonly passes: number = 1;
  private readonly prefixes: Prefixes;
  private readonly room: Room;
  private readonly outlook: Outlook | null;
  /** Requests of the batch's chunks, and passes that these have had. */
  readonly chunkSlots: Int32Array;
  readonly chunkPasses: Int32Array;
  /** Prompts of which a part is done, and no chunk is worked on. */
  private partial: number[] = [];
  /** Iterations that prompts have waited for others. */
  private waited = 0;
  /** Requests that came later are not seen yet. */
  private until = Infinity;

  /** @param knots of the price of a sequence (batch.ts), among them the most tokens that a cache holds */
  constructor(
    readonly options: O,
    readonly requests: Requests,
    readonly waiting: WaitingQueue,
    protected readonly listener: Listener,
    private readonly counts: Counts,
    knots: Float64Array,
  ) {
    const mostChunks = Math.min(options.maxNumSeqs, options.maxNumBatchedTokens) + 1;
    this.pool = new BlockPool(options.blocks, options.unitTokens / options.blockTokens);
    this.prefixes = new Prefixes(options, requests, this.pool, counts);
    this.room = new Room(options, requests, this.running, this.pool);
    this.outlook = options.answerShare ? new Outlook(options.answerShare, this) : null;
    this.batch = new MixedBatch(knots, mostChunks);
    this.chunkSlots = new Int32Array(mostChunks);
    this.chunkPasses = new Int32Array(mostChunks);
  }

  /** Prompts take turns, each with all of its blocks. */
  private get rotates(): boolean {
    return this.options.promptsRotate === true && this.options.chunkedPrefill;
  }

  /** Sequences that decode. */
  abstract get decoding(): number;
  /** Blocks that the tokens need which are to begin. */
  protected abstract needed(): number;
  /** Begins them, and takes these blocks. */
  protected abstract beginTokens(): void;
  /** Blocks of a sequence with so many cached tokens and the token that it begins. */
  protected abstract blocksToBegin(slot: number, length: number): number;
  /** A sequence with so many cached tokens decodes. @param now its first token begins in this iteration */
  protected abstract decode(slot: number, length: number, now: boolean): void;
  /** It decodes no longer: its cached and its output tokens are in `requests`. @returns blocks that it has */
  protected abstract stop(slot: number): number;
  /** Tokens of an answer that are written. */
  written(slot: number): number {
    return this.requests.emitted[slot]!;
  }
  /** It will decode no longer, because it is preempted. */
  protected interrupt(_slot: number): void {}
  /** The passes of the iteration are done. */
  protected abstract endTokens(): void;

  /**
   * Begins an iteration: `batch` has what it works on.
   * @param until where it was scheduled at that time, when the one before began; what came and ended since is not seen
   * @returns false where there is nothing to do
   */
  begin(until = Infinity): boolean {
    this.until = until;
    this.room.begin(until < Infinity);
    const works = this.schedule();
    this.room.scheduled();
    return works;
  }

  private schedule(): boolean {
    const { batch, options } = this;
    const { promptsFirst, inTurns, maxNumBatchedTokens: most } = options;
    this.limit = NONE;
    if (this.running.length === 0) this.outlook?.rest();
    const afterPrompts = batch.paused;
    batch.paused = promptsFirst;
    if (promptsFirst) this.schedulePrompts(most, false);
    if (!promptsFirst || batch.chunks.count === 0) {
      batch.paused = false;
      const preempted = this.growSequences();
      const beside = inTurns ? 0 : this.decoding;
      const tokensTurn = inTurns && afterPrompts && this.decoding > 0;
      const none = tokensTurn || this.waitsForPrompts();
      this.schedulePrompts(none ? 0 : most - batch.chunks.total - beside, preempted);
      if (inTurns) batch.paused = batch.chunks.count > 0;
    }
    return this.decoding + batch.chunks.count > 0;
  }

  /** Ends the iteration that `begin` began. */
  end(): void {
    const { batch, loops } = this;
    const passes = batch.paused ? loops : this.passes;
    if (!batch.paused) this.endTokens();
    if (batch.chunks.count === 0) return;
    const ended: number[] = [];
    this.sift((i) => {
      const done = this.chunkPasses[i]! + passes;
      if (done < loops) return done;
      ended.push(this.chunkSlots[i]!, batch.chunks.tokens[i]!);
      return NONE;
    });
    for (let i = 0; i < ended.length; i += 2) this.endChunk(ended[i]!, ended[i + 1]!);
  }

  /** Takes a request out, between iterations: whether it waits or has a place. */
  cancel(slot: number): void {
    if (this.requests.state[slot] === STATE.waiting) this.waiting.remove(slot);
    else this.release(slot);
  }

  /** Lets sequences begin their next token, for which there must be a block. @returns true where some were preempted */
  private growSequences(): boolean {
    const { outlook } = this;
    let [preempted, ahead] = [false, 0];
    while (this.decoding > 0 && Math.max(this.needed(), ahead) > this.room.blocks) {
      this.preempt(this.running.at(-1)!);
      preempted = true;
      ahead = outlook?.ahead(this.decoding) ?? 0;
    }
    if (this.decoding > 0) outlook?.step(preempted);
    this.beginTokens();
    return preempted;
  }

  /** Whether prompts wait for others in this iteration. */
  private waitsForPrompts(): boolean {
    const { options, requests, partial, waiting, decoding } = this;
    const { batchWait: wait, maxNumSeqs, maxNumBatchedTokens: most } = options;
    if (!wait || decoding === 0) return false;
    const begun = partial.reduce((sum, slot) => sum + requests.target[slot]! - requests.computed[slot]!, 0);
    const prompts = begun + (this.running.length < maxNumSeqs ? waiting.tokens : 0);
    if (prompts === 0) return false;
    const enough = decoding + Math.min(prompts, most - decoding) >= wait.tokens;
    this.waited = enough || this.waited >= wait.iterations ? 0 : this.waited + 1;
    return this.waited > 0;
  }

  private schedulePrompts(budget: number, preempted: boolean): void {
    const left = this.rotates ? budget : this.continuePrompt(budget);
    this.limit = preempted || left < 0 ? NO_BLOCKS : this.admit(left);
    if (this.rotates) this.takeTurns(budget);
  }

  /** Gives each prompt that has a place a part of the budget; `endChunk` puts what is not done behind the others. */
  private takeTurns(budget: number): void {
    const { requests } = this;
    for (let slot = this.partial[0]; slot !== undefined && budget > 0; slot = this.partial[0]) {
      const done = requests.computed[slot]!;
      const tokens = Math.min(requests.target[slot]! - done, budget);
      this.addChunk(slot, tokens, done);
      budget -= tokens;
    }
  }

  /** Works on with a prompt that is partly done. @returns tokens left of the budget, −1 where it was preempted */
  private continuePrompt(budget: number): number {
    const { requests, pool, partial } = this;
    if (partial.length === 0 || budget <= 0) return Math.max(0, budget);
    const slot = partial.length === 1 ? partial[0]! : this.running.find((one) => partial.includes(one))!;
    const done = requests.computed[slot]!;
    const tokens = Math.min(requests.target[slot]! - done, budget);
    const blocks = this.blocksFor(done + tokens) - this.blocksFor(done);
    if (blocks > this.room.blocks) {
      this.preempt(slot);
      return NONE;
    }
    pool.take(blocks);
    this.addChunk(slot, tokens, done);
    return budget - tokens;
  }

  /** Begins requests that wait. @returns what keeps the next one waiting, as `limit` */
  private admit(budget: number): number {
    const { outlook, options } = this;
    const watermark = Math.floor((options.watermark ?? 0) * options.blocks);
    if (!outlook || this.waiting.size === 0) return this.admitBeside(watermark, budget);
    if (outlook.full !== null) return outlook.full;
    const limit = this.admitBeside(watermark + outlook.kept(), budget);
    if ((limit === NO_BLOCKS || limit === NO_PLACE) && !this.room.holds) outlook.full = limit;
    return limit;
  }

  /** @param kept blocks that stay free for answers */
  private admitBeside(kept: number, budget: number): number {
    const { options, requests, pool, waiting, batch, running } = this;
    while (waiting.size > 0) {
      if (!this.room.hasPlace) return NO_PLACE;
      if (budget <= 0) return NO_BUDGET;
      const slot = waiting.peek();
      if (requests.queued[slot]! > this.until) return NONE;
      const target = requests.target[slot]!;
      // Another replica has computed its prompt.
      const comes = requests.state[slot] === STATE.transfer;
      // Beside sequences come those that decode at once, and beside prompts no others.
      if (options.promptsFirst && comes === batch.paused) return this.limit;
      if (comes) {
        if (this.blocksToBegin(slot, target) > this.room.blocks || this.room.breaksPromises(slot)) return NO_BLOCKS;
        this.open(slot);
        // It was looked up where it was computed.
        requests.units[slot] = 0;
        if (this.emit(slot)) continue;
        this.decode(slot, target, true);
        budget--;
        continue;
      }
      const hits = this.prefixes.hitsOf(slot, target);
      const before = hits * options.unitTokens;
      const whole = target - before;
      if (!options.chunkedPrefill && whole > budget && batch.chunks.count > 0) return NO_BUDGET;
      const first = options.chunkedPrefill && !this.rotates ? Math.min(whole, budget) : whole;
      const shared = hits * pool.unitBlocks;
      const needed = this.blocksFor(options.reserveFullPrompt ? target : before + first) - shared;
      const own = this.outlook?.blocksFor(slot) ?? 0;
      const free = this.room.blocks - this.prefixes.idleHits(slot, hits) - (running.length > 0 ? kept + own : 0);
      if (needed > free || this.room.breaksPromises(slot)) return NO_BLOCKS;
      kept += own;
      this.open(slot);
      this.prefixes.useHits(slot, hits);
      pool.take(this.blocksFor(before + first) - shared);
      requests.computed[slot] = before;
      if (this.rotates) {
        this.partial.push(slot);
        continue;
      }
      this.addChunk(slot, first, before);
      budget -= first;
    }
    return NONE;
  }

  /** Gives the request that waits first a place. */
  private open(slot: number): void {
    this.waiting.pop();
    this.running.push(slot);
    this.room.opened(slot);
    this.requests.state[slot] = STATE.prefill;
    this.listener.began(slot);
  }

  private addChunk(slot: number, tokens: number, before: number): void {
    if (this.partial.length > 0) this.partial = this.partial.filter((one) => one !== slot);
    this.list(slot, tokens, before, 0);
    this.prefixes.nameUnits(slot, before + tokens);
  }

  private list(slot: number, tokens: number, before: number, passes: number): void {
    const { batch } = this;
    this.chunkSlots[batch.chunks.count] = slot;
    this.chunkPasses[batch.chunks.count] = passes;
    batch.addChunk(tokens, before, before + tokens === this.requests.target[slot]!);
  }

  /** Keeps chunks. @param passesOf passes that one has had, −1 where it is not kept */
  private sift(passesOf: (chunk: number) => number): void {
    const { batch } = this;
    const { count, tokens, before } = batch.chunks;
    batch.clearChunks();
    for (let i = 0; i < count; i++) {
      const passes = passesOf(i);
      if (passes >= 0) this.list(this.chunkSlots[i]!, tokens[i]!, before[i]!, passes);
    }
  }

  private endChunk(slot: number, tokens: number): void {
    const { requests } = this;
    const done = (requests.computed[slot]! += tokens);
    if (done < requests.target[slot]!) {
      this.partial.push(slot);
      return;
    }
    if (this.options.prefillOnly) {
      this.release(slot);
      this.listener.prefilled(slot);
    } else if (!this.emit(slot)) this.decode(slot, done, false);
  }

  /** A request gets tokens at once. @returns true where its answer has ended */
  protected emit(slot: number, tokens = 1): boolean {
    const { requests } = this;
    this.listener.token(slot, tokens);
    requests.emitted[slot]! += tokens;
    if (requests.emitted[slot]! < requests.output[slot]!) return false;
    this.complete(slot);
    return true;
  }

  protected complete(slot: number): void {
    this.release(slot);
    this.listener.ended(slot);
  }

  /** Takes a sequence's blocks away. It will be computed again, from its prompt and the tokens that it has. */
  private preempt(slot: number): void {
    const { requests, counts, listener } = this;
    if (requests.state[slot] === STATE.decode) this.interrupt(slot);
    requests.preemptions[slot]!++;
    counts.preemptions++;
    counts.recomputedTokens += this.release(slot);
    requests.target[slot] = requests.prompt[slot]! + requests.emitted[slot]!;
    requests.state[slot] = STATE.waiting;
    listener.preempted?.(slot);
    this.waiting.putBack(slot);
  }

  /** Takes a request's place and blocks away. @returns tokens that were cached */
  private release(slot: number): number {
    const { requests, prefixes, pool, running } = this;
    const blocks = requests.state[slot] === STATE.decode ? this.stop(slot) : this.blocksOfPrompt(slot);
    const length = requests.computed[slot]!;
    prefixes.nameUnits(slot, length);
    // The end of a text goes first: it is less likely to be asked for again than its beginning.
    const freed = blocks - requests.units[slot]! * pool.unitBlocks;
    pool.give(freed);
    prefixes.leave(slot);
    running.splice(running.lastIndexOf(slot), 1);
    if (this.outlook) this.outlook.full = null;
    this.room.closed(slot, freed);
    requests.computed[slot] = 0;
    return length;
  }

  /** Blocks of a request whose prompt is worked on; its chunk is withdrawn. */
  private blocksOfPrompt(slot: number): number {
    const { computed, target } = this.requests;
    let tokens = computed[slot]!;
    if (this.partial.length > 0) this.partial = this.partial.filter((one) => one !== slot);
    if (this.chunkSlots.subarray(0, this.batch.chunks.count).includes(slot))
      this.sift((i) => {
        if (this.chunkSlots[i] !== slot) return this.chunkPasses[i]!;
        tokens += this.batch.chunks.tokens[i]!;
        return NONE;
      });
    return this.blocksFor(this.rotates ? target[slot]! : tokens);
  }

  /** Blocks that hold so many tokens of all loops. */
  protected blocksFor(tokens: number): number {
    return blocksOf(tokens, this.options);
  }
}
