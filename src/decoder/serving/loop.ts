/**
 * Continuous batching: requests share the sequences of a decoder. A server would call `submit` when a request comes,
 * `step` as long as there is work, hand out the tokens that each step returns, and `cancel` when a client leaves.
 *
 * The scheduler is vLLM's (v1), as the simulation has it (serving/replica.ts): every iteration gives each decoding
 * sequence a token, prompts take the rest of the token budget in chunks, and when no block of cache is left the sequence
 * that began last is preempted: it loses its cache and is computed again from its prompt and its tokens.
 */
import { UserError } from '../../errors.js';

/** What the loop asks of a decoder. Sequences are numbered from 0. */
export interface SequenceEngine {
  readonly sequences: number;
  /** Tokens that a sequence can have. */
  readonly contextTokens: number;
  /**
   * Takes a part of a prompt into a sequence, behind what it holds.
   * @param ends false where more follows
   * @returns the token after the prompt, null where it goes on; seconds of the device
   */
  extend(
    sequence: number,
    tokens: readonly number[],
    ends: boolean,
  ): Promise<{ readonly token: number | null; readonly seconds: number }>;
  /** One token for each sequence that `joins`; the others keep what they hold. */
  step(
    tokens: readonly number[],
    joins: (sequence: number) => boolean,
  ): Promise<{ readonly tokens: ArrayLike<number>; readonly seconds: number }>;
  /** Empties a sequence for a request. @param stream of its random draws @param draw number of the first */
  forget(sequence: number, stream: number, draw: number): void;
}

export interface LoopOptions {
  /** Tokens of an iteration: one for each decoding sequence, the rest for prompts. At least the number of sequences. */
  readonly maxNumBatchedTokens: number;
  /** False: prompts are taken in whole only, one beyond the budget alone. Eviction needs this. */
  readonly chunkedPrefill: boolean;
  /** Tokens of a block, and blocks of all sequences together. */
  readonly blockTokens: number;
  readonly blocks: number;
  /** Tokens of a sequence that its cache holds at most (eviction); Infinity without. */
  readonly capTokens: number;
}

export interface LoopRequest {
  /** Chosen by the caller; no two requests in the loop share it. */
  readonly id: number;
  readonly prompt: readonly number[];
  /** Tokens to generate at most. */
  readonly maxTokens: number;
  /** Tokens after which it ends early. */
  readonly endTokens?: readonly number[];
}

/** A token of a request. */
export interface TokenOut {
  readonly id: number;
  readonly token: number;
  /** True for its last one. */
  readonly ended: boolean;
}

/** What one iteration did. */
export interface Iteration {
  /** Seconds of the device: its decode step and its prompts, one after the other. */
  readonly seconds: number;
  readonly tokens: readonly TokenOut[];
  /** Sequences that decoded, and tokens of prompts. */
  readonly decoded: number;
  readonly promptTokens: number;
  /** Requests that lost their cache before it. */
  readonly preempted: readonly number[];
}

interface Job {
  readonly request: LoopRequest;
  /** Tokens that it has generated. */
  readonly out: number[];
  /** −1 while it waits. */
  sequence: number;
  /** Tokens in the cache, and those that must be there before the next one is chosen. */
  cached: number;
  target: number;
  decoding: boolean;
}

export class ServingLoop {
  private readonly waiting: Job[] = [];
  /** In the order in which they began. */
  private readonly running: Job[] = [];
  private readonly free: number[];
  private usedBlocks = 0;
  private stepping = false;

  constructor(
    private readonly engine: SequenceEngine,
    private readonly options: LoopOptions,
  ) {
    if (options.maxNumBatchedTokens < engine.sequences)
      throw new UserError(
        `an iteration of ${options.maxNumBatchedTokens} tokens cannot give each of ${engine.sequences} sequences one`,
        'raise the tokens of an iteration, or open fewer sequences',
      );
    this.free = Array.from({ length: engine.sequences }, (_, i) => engine.sequences - 1 - i);
  }

  /** Requests that have not ended. */
  get active(): number {
    return this.waiting.length + this.running.length;
  }

  /**
   * Adds a request, behind those that wait.
   * @throws UserError for one that can never be served
   */
  submit(request: LoopRequest): void {
    const { id, prompt, maxTokens } = request;
    if (prompt.length === 0 || maxTokens < 1)
      throw new UserError(`request ${id} has no prompt or asks for no tokens`, 'give at least one of each');
    // The last token is chosen, and not cached.
    const most = prompt.length + maxTokens - 1;
    if (most > this.engine.contextTokens || this.blocksFor(most) > this.options.blocks)
      throw new UserError(
        `request ${id} may have ${most} tokens, more than the cache holds`,
        'shorten it, or open a longer context',
      );
    if ([...this.waiting, ...this.running].some((job) => job.request.id === id))
      throw new UserError(`request ${id} is being served already`, 'give another number');
    this.waiting.push({ request, out: [], sequence: -1, cached: 0, target: prompt.length, decoding: false });
  }

  /** Drops a request; between iterations. @returns false where there is none of this number */
  cancel(id: number): boolean {
    if (this.stepping) throw new Error('requests are cancelled between iterations');
    const waits = this.waiting.findIndex((job) => job.request.id === id);
    if (waits >= 0) this.waiting.splice(waits, 1);
    const runs = this.running.find((job) => job.request.id === id);
    if (runs) this.leave(runs);
    return waits >= 0 || runs !== undefined;
  }

  /**
   * Runs one iteration.
   * @returns null where no request is there
   * @throws as the decoder does; the loop cannot go on then
   */
  async step(): Promise<Iteration | null> {
    if (this.stepping) throw new Error('one iteration at a time');
    if (this.active === 0) return null;
    this.stepping = true;
    try {
      const preempted = this.growSequences();
      const decoding = this.running.filter((job) => job.decoding);
      const chunks = this.scheduleChunks(this.options.maxNumBatchedTokens - decoding.length, preempted);
      const tokens: TokenOut[] = [];
      let seconds = 0;
      if (decoding.length > 0) seconds += await this.decode(decoding, tokens);
      for (const { job, count } of chunks) seconds += await this.takeIn(job, count, tokens);
      const promptTokens = chunks.reduce((sum, { count }) => sum + count, 0);
      return { seconds, tokens, decoded: decoding.length, promptTokens, preempted };
    } finally {
      this.stepping = false;
    }
  }

  /** Takes the blocks that decoding sequences need. @returns requests that were preempted for it */
  private growSequences(): number[] {
    const preempted: number[] = [];
    const needed = (): number =>
      this.running.reduce(
        (sum, job) => sum + (job.decoding ? this.blocksFor(job.cached + 1) - this.blocksFor(job.cached) : 0),
        0,
      );
    while (this.usedBlocks + needed() > this.options.blocks) preempted.push(this.preempt(this.running.at(-1) as Job));
    this.usedBlocks += needed();
    return preempted;
  }

  /** Prompts of the iteration, and how many tokens of each. The one that is partly done comes first. */
  private scheduleChunks(tokens: number, preempted: number[]): { job: Job; count: number }[] {
    const { options, running, waiting, free } = this;
    const chunks: { job: Job; count: number }[] = [];
    let budget = tokens;
    const partial = running.find((job) => !job.decoding);
    if (partial && budget > 0) {
      const count = Math.min(partial.target - partial.cached, budget);
      const blocks = this.blocksFor(partial.cached + count) - this.blocksFor(partial.cached);
      if (this.usedBlocks + blocks > options.blocks) preempted.push(this.preempt(partial));
      else {
        this.usedBlocks += blocks;
        budget -= count;
        chunks.push({ job: partial, count });
      }
    }
    while (preempted.length === 0 && budget > 0 && free.length > 0) {
      const job = waiting[0];
      if (!job || (!options.chunkedPrefill && job.target > budget && chunks.length > 0)) break;
      // It begins only where its whole prompt has room.
      if (this.usedBlocks + this.blocksFor(job.target) > options.blocks) break;
      const count = options.chunkedPrefill ? Math.min(job.target, budget) : job.target;
      waiting.shift();
      this.begin(job);
      this.usedBlocks += this.blocksFor(count);
      budget -= count;
      chunks.push({ job, count });
    }
    return chunks;
  }

  private begin(job: Job): void {
    job.sequence = this.free.pop() as number;
    this.running.push(job);
    // Draws of a request depend neither on the sequence that it got nor on its preemptions.
    this.engine.forget(job.sequence, job.request.id, job.out.length);
  }

  private async decode(jobs: readonly Job[], tokens: TokenOut[]): Promise<number> {
    const last = new Array<number>(this.engine.sequences).fill(0);
    for (const job of jobs) last[job.sequence] = job.out.at(-1) as number;
    const joining = new Set(jobs.map((job) => job.sequence));
    const result = await this.engine.step(last, (sequence) => joining.has(sequence));
    for (const job of jobs) {
      job.cached++;
      this.emit(job, result.tokens[job.sequence] as number, tokens);
    }
    return result.seconds;
  }

  private async takeIn(job: Job, count: number, tokens: TokenOut[]): Promise<number> {
    const { prompt } = job.request;
    const from = job.cached;
    const part = Array.from({ length: count }, (_, i) => {
      const at = from + i;
      return (at < prompt.length ? prompt[at] : job.out[at - prompt.length]) as number;
    });
    const result = await this.engine.extend(job.sequence, part, from + count === job.target);
    job.cached += count;
    if (result.token !== null) {
      job.decoding = true;
      this.emit(job, result.token, tokens);
    }
    return result.seconds;
  }

  private emit(job: Job, token: number, tokens: TokenOut[]): void {
    const { id, maxTokens, endTokens } = job.request;
    job.out.push(token);
    const ended = job.out.length === maxTokens || endTokens?.includes(token) === true;
    tokens.push({ id, token, ended });
    if (ended) this.leave(job);
  }

  /** Takes a request's cache away; it waits before all others. @returns its number */
  private preempt(job: Job): number {
    this.leave(job);
    job.target = job.request.prompt.length + job.out.length;
    job.sequence = -1;
    job.cached = 0;
    job.decoding = false;
    this.waiting.unshift(job);
    return job.request.id;
  }

  private leave(job: Job): void {
    this.running.splice(this.running.indexOf(job), 1);
    this.usedBlocks -= this.blocksFor(job.cached);
    this.engine.forget(job.sequence, job.request.id, 0);
    this.free.push(job.sequence);
  }

  /** Blocks that hold so many tokens of a sequence. */
  private blocksFor(tokens: number): number {
    return Math.ceil(Math.min(tokens, this.options.capTokens) / this.options.blockTokens);
  }
}
