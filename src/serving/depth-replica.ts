/**
 * A replica whose tokens may leave early (depth.ts), scheduled as Replica is. Tokens of one batch take different numbers
 * of loops, so nothing is counted for all sequences at once: an iteration looks at each. Prompts take all loops. There
 * is no prefix cache, since what is cached of a token depends on its depth.
 */
import { MixedBatch } from './batch.js';
import { BlockPool } from './blocks.js';
import { DepthDraws, type Depth } from './depth.js';
import type { Surroundings } from './replica.js';
import type { Metrics } from './metrics.js';
import { blocksOf, type ReplicaOptions } from './options.js';
import { STATE, type Requests } from './requests.js';
import { roundSeconds } from './round-price.js';
import { acceptedOf, type Speculation } from './speculation.js';
import type { WaitingQueue } from './waiting.js';

/** Prices of passes over the looped layers. */
export interface LoopPricer {
  readonly knots: Float64Array;
  /**
   * One pass: the batch's sequences, and its chunks of prompts.
   * @param rowsEach rows of each sequence, which read its cache together
   */
  pass(batch: MixedBatch, rowsEach?: number): number;
  /** False where each row reads the cache for itself. */
  readonly readsTogether: boolean;
  /**
   * What an iteration has beside its passes: the server's own time, and what comes once a token or prompt.
   * @param begun sequences that begin a token
   * @param promptTokens tokens of chunks that begin
   * @param ended tokens that are chosen
   * @param skipped loops that those left out
   */
  outside(begun: number, promptTokens: number, ended: number, skipped: number): number;
  /** All loops of the batch's chunks, alone. */
  prompts(batch: MixedBatch): number;
}

export interface DepthOptions extends ReplicaOptions {
  readonly depth: Depth;
  /** With prompts computed by other replicas: who gives the first token. */
  readonly firstTokenBy: 'prefill' | 'decode';
  /** Prompts and tokens run in turns: at most one batch of chunks between two passes, or two rounds. */
  readonly inTurns: boolean;
  /** Rounds of proposals in place of tokens, each of all loops; null without. */
  readonly speculation: Speculation | null;
  /** Cache of a token of so many loops, over that of one of all loops, where what it left out is not stored. */
  readonly weightOf: (loops: number) => number;
}

interface Job {
  readonly slot: number;
  readonly number: number;
  /** Prompt tokens that are done, or all cached tokens once it decodes. */
  cached: number;
  /** Cached tokens in tokens of all loops. */
  held: number;
  /** Blocks that it has. */
  blocks: number;
  decoding: boolean;
  /** Of the current token: its loops, and those that are done. 0 of 0: none has begun. */
  loops: number;
  done: number;
  /** Of the current round: proposals that will be accepted. */
  accepted: number;
  /** Loops that tokens which left early still run, one entry a token. */
  fills: number[];
}

interface RunningChunk {
  readonly job: Job;
  readonly tokens: number;
  readonly before: number;
  done: number;
}

export class DepthReplica {
  readonly pool: BlockPool;
  busy = false;
  outstanding = 0;
  private readonly jobs: Job[] = [];
  private chunks: RunningChunk[] = [];
  private readonly batch: MixedBatch;
  private readonly draws: DepthDraws;
  private readonly all: number;
  /** Passes of the iteration that runs, for sequences and for chunks. */
  private passes = 0;
  private chunkPasses = 0;
  /** The last iteration was one of prompts alone. */
  private prompted = false;

  constructor(
    readonly index: number,
    private readonly options: DepthOptions,
    private readonly requests: Requests,
    readonly waiting: WaitingQueue,
    private readonly pricer: LoopPricer,
    private readonly metrics: Metrics,
    private readonly around: Surroundings,
  ) {
    this.pool = new BlockPool(options.blocks, 1);
    this.batch = new MixedBatch(pricer.knots, options.maxNumBatchedTokens + 1);
    this.draws = new DepthDraws(options.depth, options.depth.seed);
    this.all = options.depth.probabilities.length;
  }

  get runningCount(): number {
    return this.jobs.length;
  }

  /** Begins an iteration: a step, or one pass. @returns its seconds, −1 where there is nothing to do */
  begin(now: number): number {
    const { metrics, options } = this;
    const preempted = this.growSequences();
    const { inTurns, speculation } = options;
    const decoding = this.decoding;
    const tokensTurn = inTurns && this.prompted && decoding > 0;
    const inFlight = this.chunks.reduce((sum, chunk) => sum + chunk.tokens, inTurns ? 0 : decoding);
    const room = tokensTurn ? 0 : options.maxNumBatchedTokens - inFlight;
    const limit = this.scheduleChunks(now, room, preempted);
    if (this.jobs.length === 0) return -1;
    this.prompted = inTurns && this.chunks.length > 0;
    const inSteps = options.depth.batching === 'steps';
    const seconds = this.prompted
      ? this.prompts()
      : speculation
        ? this.round(speculation)
        : inSteps
          ? this.step()
          : this.pass();
    this.busy = true;
    metrics.iterations++;
    metrics.busySeconds += seconds;
    metrics.sequenceSeconds += seconds * this.jobs.length;
    metrics.mostSequences = Math.max(metrics.mostSequences, this.jobs.length);
    const { used } = this.pool;
    metrics.blockSeconds += seconds * used;
    metrics.mostBlocks = Math.max(metrics.mostBlocks, used);
    const waiting = this.waiting.size;
    if (waiting > 0 && limit >= 0) metrics.limitSeconds[limit]! += seconds * waiting;
    metrics.timeline.add(now + seconds, seconds, this.jobs.length, waiting, used);
    return seconds;
  }

  private get decoding(): number {
    return this.jobs.reduce((sum, job) => sum + (job.decoding ? 1 : 0), 0);
  }

  /** Ends the iteration: its passes are done. */
  end(now: number): void {
    this.busy = false;
    for (const job of [...this.jobs]) {
      if (!job.decoding) continue;
      if (this.passes === 0) continue;
      job.done = Math.min(job.loops, job.done + this.passes);
      job.fills = job.fills.map((left) => left - this.passes).filter((left) => left > 0);
      if (job.done === job.loops) this.endToken(job, now);
    }
    const running = this.chunks;
    this.chunks = [];
    for (const chunk of running) {
      chunk.done += this.chunkPasses;
      if (chunk.done < this.all) this.chunks.push(chunk);
      else this.endChunk(chunk, now);
    }
  }

  /** All loops of chunks of prompts, alone. */
  private prompts(): number {
    this.passes = 0;
    this.chunkPasses = this.all;
    this.fillBatch(() => 0);
    return this.pricer.prompts(this.batch);
  }

  /** A round of proposals of each sequence, and the passes of the other loops over them. */
  private round({ draftLoops, draftTokens: most }: Speculation): number {
    const { output, emitted } = this.requests;
    this.passes = this.all;
    this.chunkPasses = 0;
    this.fillBatch(() => 1);
    // The last token of an answer is never a proposal's.
    const left = this.jobs.reduce(
      (max, { decoding, slot }) => (decoding ? Math.max(max, output[slot]! - emitted[slot]!) : max),
      1,
    );
    const draftTokens = Math.min(most, left - 1);
    return roundSeconds({ draftLoops, draftTokens }, this.all, this.pricer, this.batch, () => {
      this.fillBatch(() => draftTokens + 1);
      return this.batch;
    });
  }

  /** All loops of a token of each sequence; those that left early wait. */
  private step(): number {
    const { all, pricer, options } = this;
    const keeps = options.depth.skippedKv === 'recompute';
    const deepest = this.jobs.reduce((most, job) => Math.max(most, keeps || !job.decoding ? all : job.loops), 0);
    const promptTokens = this.chunks.reduce((sum, chunk) => sum + chunk.tokens, 0);
    const ending = this.chunks.reduce((sum, chunk) => sum + (this.endsPrompt(chunk) ? 1 : 0), 0);
    this.passes = this.chunkPasses = all;
    const skipped = this.jobs.reduce((sum, { decoding, loops }) => sum + (decoding ? all - loops : 0), 0);
    let seconds = pricer.outside(this.decoding, promptTokens, this.decoding + ending, skipped);
    for (let loop = 0; loop < deepest; loop++) {
      this.fillBatch((job) => (keeps || job.loops > loop ? 1 : 0));
      seconds += pricer.pass(this.batch);
    }
    return seconds;
  }

  /** One pass over the looped layers, each sequence in its own loop. */
  private pass(): number {
    const { all, pricer } = this;
    let [begun, begunTokens, ended, skipped] = [0, 0, 0, 0];
    for (const { decoding, loops, done } of this.jobs) {
      if (!decoding) continue;
      if (done === 0) begun++;
      if (done + 1 < loops) continue;
      ended++;
      skipped += all - loops;
    }
    for (const chunk of this.chunks) {
      if (chunk.done === 0) begunTokens += chunk.tokens;
      if (chunk.done + 1 === all && this.endsPrompt(chunk)) ended++;
    }
    this.passes = this.chunkPasses = 1;
    this.fillBatch((job) => 1 + job.fills.length);
    return pricer.pass(this.batch) + pricer.outside(begun, begunTokens, ended, skipped);
  }

  private endsPrompt({ job, tokens, before }: RunningChunk): boolean {
    return before + tokens === this.requests.target[job.slot]!;
  }

  /** @param rowsOf a decoding sequence in this pass */
  private fillBatch(rowsOf: (job: Job) => number): void {
    const { batch } = this;
    batch.clear();
    for (const job of this.jobs)
      if (job.decoding) for (let row = rowsOf(job); row > 0; row--) batch.add(Math.max(1, job.cached));
    for (const chunk of this.chunks) batch.addChunk(chunk.tokens, chunk.before, this.endsPrompt(chunk));
  }

  /** Lets sequences begin their next token, for which there must be a block. @returns true where some were preempted */
  private growSequences(): boolean {
    const { pool } = this;
    let preempted = false;
    const beginning = this.jobs.filter((job) => job.decoding && job.loops === 0);
    const needs = (job: Job): number => this.blocksToBegin(job.slot, job.held) - job.blocks;
    const needed = (): number => beginning.reduce((sum, job) => sum + needs(job), 0);
    let left = needed();
    while (left > pool.available) {
      const victim = this.victim();
      this.preempt(victim);
      const at = beginning.indexOf(victim);
      if (at >= 0) beginning.splice(at, 1);
      preempted = true;
      left = needed();
    }
    for (const job of beginning) this.beginToken(job);
    return preempted;
  }

  /** Blocks of a sequence that begins its next token. Proposals beyond an answer's end take no room. */
  private blocksToBegin(slot: number, held: number): number {
    const { output, emitted } = this.requests;
    const left = Math.max(1, output[slot]! - emitted[slot]!);
    return this.blocksFor(held + Math.min(1 + (this.options.speculation?.draftTokens ?? 0), left));
  }

  private beginToken(job: Job): void {
    const { speculation } = this.options;
    this.resize(job, this.blocksToBegin(job.slot, job.held));
    const emitted = this.requests.emitted[job.slot]!;
    job.loops = this.draws.of(job.number, emitted);
    job.accepted = speculation ? acceptedOf(speculation, job.number, emitted) : 0;
    job.done = 0;
  }

  /** @returns what keeps the next waiting request waiting, as a number in LIMITS; −1 where none waits */
  private scheduleChunks(now: number, tokens: number, preempted: boolean): number {
    const { options, requests, pool, waiting } = this;
    let budget = tokens;
    const partial = this.jobs.find((job) => !job.decoding && !this.chunks.some((chunk) => chunk.job === job));
    if (partial && budget > 0) {
      const count = Math.min(requests.target[partial.slot]! - partial.cached, budget);
      const blocks = this.blocksFor(partial.cached + count);
      if (blocks - partial.blocks > pool.available) {
        this.preempt(partial);
        return 0;
      }
      this.resize(partial, blocks);
      this.chunks.push({ job: partial, tokens: count, before: partial.cached, done: 0 });
      budget -= count;
    }
    if (preempted) return 0;
    while (waiting.size > 0) {
      if (this.jobs.length >= options.maxNumSeqs) return 1;
      if (budget <= 0) return 2;
      const slot = waiting.peek();
      const target = requests.target[slot]!;
      // Another replica has computed its prompt.
      if (requests.state[slot] === STATE.transfer) {
        if (this.blocksToBegin(slot, target) > pool.available) return 0;
        waiting.pop();
        const job = this.open(slot, now);
        [job.cached, job.held, job.decoding] = [target, target, true];
        requests.state[slot] = STATE.decode;
        if (options.firstTokenBy === 'decode' && this.emit(job, now)) continue;
        this.beginToken(job);
        budget--;
        continue;
      }
      if (!options.chunkedPrefill && target > budget && this.chunks.length > 0) return 2;
      const first = options.chunkedPrefill ? Math.min(target, budget) : target;
      if (this.blocksFor(options.reserveFullPrompt ? target : first) > pool.available) return 0;
      waiting.pop();
      const job = this.open(slot, now);
      this.resize(job, this.blocksFor(first));
      this.chunks.push({ job, tokens: first, before: 0, done: 0 });
      budget -= first;
    }
    return -1;
  }

  private open(slot: number, now: number): Job {
    const { requests } = this;
    requests.replica[slot] = this.index;
    requests.state[slot] = STATE.prefill;
    if (requests.scheduled[slot]! < 0) requests.scheduled[slot] = now;
    const number = requests.number[slot]!;
    const job: Job = {
      slot,
      number,
      cached: 0,
      held: 0,
      blocks: 0,
      decoding: false,
      loops: 0,
      done: 0,
      accepted: 0,
      fills: [],
    };
    this.jobs.push(job);
    return job;
  }

  private endChunk({ job, tokens }: RunningChunk, now: number): void {
    const { requests } = this;
    job.cached += tokens;
    job.held += tokens;
    if (job.cached < requests.target[job.slot]!) return;
    job.decoding = true;
    requests.state[job.slot] = STATE.decode;
    const { prefillOnly, firstTokenBy } = this.options;
    if (!(prefillOnly && firstTokenBy === 'decode') && this.emit(job, now)) return;
    if (!prefillOnly) return;
    this.leave(job);
    this.around.prefilled(job.slot, now);
  }

  /** The current token has left the loops. */
  private endToken(job: Job, now: number): void {
    const { depth, weightOf } = this.options;
    const { output, emitted } = this.requests;
    // Proposals beyond the answer's end are dropped.
    const tokens = Math.min(1 + job.accepted, output[job.slot]! - emitted[job.slot]!);
    job.cached += tokens;
    job.held += depth.skippedKv === 'share' ? weightOf(job.loops) : tokens;
    if (depth.skippedKv === 'recompute' && depth.batching === 'loops' && job.loops < this.all)
      job.fills.push(this.all - job.loops);
    this.resize(job, this.blocksFor(job.held));
    job.loops = 0;
    job.done = 0;
    this.emit(job, now, tokens);
  }

  /** @param tokens that the user gets at once @returns true where the answer has ended */
  private emit(job: Job, now: number, tokens = 1): boolean {
    const { requests, metrics } = this;
    const { slot } = job;
    if (requests.firstToken[slot]! < 0) requests.firstToken[slot] = now;
    else metrics.itl.add(now - requests.lastToken[slot]!);
    requests.lastToken[slot] = now;
    requests.emitted[slot]! += tokens;
    if (requests.emitted[slot]! < requests.output[slot]!) return false;
    this.leave(job);
    this.around.completed(slot, now);
    return true;
  }

  /** The sequence that is preempted: the last one that began, or the least urgent. */
  private victim(): Job {
    const { requests, jobs } = this;
    if (this.options.policy !== 'priority') return jobs.at(-1)!;
    return jobs.reduceRight((a, b) => {
      const more = requests.priority[b.slot]! - requests.priority[a.slot]!;
      return more > 0 || (more === 0 && b.number > a.number) ? b : a;
    });
  }

  private preempt(job: Job): void {
    const { requests, metrics } = this;
    const { slot } = job;
    metrics.preemptions++;
    metrics.recomputedTokens += job.cached;
    requests.preemptions[slot]!++;
    requests.target[slot] = requests.prompt[slot]! + requests.emitted[slot]!;
    requests.state[slot] = STATE.waiting;
    this.leave(job, false);
    this.waiting.putBack(slot);
  }

  private leave(job: Job, ends = true): void {
    this.resize(job, 0);
    this.jobs.splice(this.jobs.indexOf(job), 1);
    this.chunks = this.chunks.filter((chunk) => chunk.job !== job);
    if (ends) this.outstanding--;
  }

  private resize(job: Job, blocks: number): void {
    if (blocks > job.blocks) this.pool.take(blocks - job.blocks);
    else this.pool.give(job.blocks - blocks);
    job.blocks = blocks;
  }

  /** Blocks that hold so many tokens of all loops. */
  private blocksFor(tokens: number): number {
    return blocksOf(tokens, this.options);
  }
}
