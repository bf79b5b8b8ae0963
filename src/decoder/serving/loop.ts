/**
 * Continuous batching: requests share the sequences of a decoder. A server would call `submit` when a request comes,
 * `step` as long as there is work, hand out the tokens that each step returns, and `cancel` when a client leaves. The
 * schedule is the simulation's own (serving/scheduler/scheduler.ts).
 */
import type { Draft } from '../../codecs/verification.js';
import { UserError } from '../../errors.js';
import { allLoops } from '../../serving/depth.js';
import { CountedScheduler } from '../../serving/scheduler/counted.js';
import { blocksOf, type ReplicaOptions } from '../../serving/scheduler/options.js';
import { LoopedScheduler } from '../../serving/scheduler/looped.js';
import { emptyDraft, Requests, STATE } from '../../serving/scheduler/requests.js';
import type { Listener } from '../../serving/scheduler/listener.js';
import type { Scheduler } from '../../serving/scheduler/scheduler.js';
import { WaitingQueue } from '../../serving/scheduler/waiting.js';

/** What the loop asks of a decoder. Sequences are numbered from 0. */
export interface SequenceEngine {
  readonly sequences: number;
  /** Tokens that a sequence can have. */
  readonly contextTokens: number;
  /** Its steps are rounds of speculation; without, they give a token each. */
  readonly draft?: Draft;
  /**
   * Takes a part of a prompt into a sequence, behind the tokens that it holds. Others keep what they hold.
   * @param ends false where more of the prompt follows: no token is chosen then
   * @returns the token after the prompt, null where it goes on; seconds of the device
   */
  extend(
    sequence: number,
    tokens: readonly number[],
    ends: boolean,
  ): Promise<{ readonly token: number | null; readonly seconds: number }>;
  /** Tokens of each sequence that `joins`, a round's or one; the others keep what they hold. */
  step(
    tokens: readonly number[],
    joins: (sequence: number) => boolean,
  ): Promise<{ readonly tokens: readonly (readonly number[])[]; readonly seconds: number }>;
  /** Empties a sequence for a request. @param stream of its random draws @param draw number of the first */
  forget(sequence: number, stream: number, draw: number): void;
}

/** At least as many tokens of an iteration as sequences; whole prompts where there is eviction. */
export type LoopOptions = Pick<
  ReplicaOptions,
  'maxNumBatchedTokens' | 'chunkedPrefill' | 'blockTokens' | 'blocks' | 'capTokens'
>;

/** What a server of these options has beside them. */
export const replicaOptions = (options: LoopOptions, sequences: number): ReplicaOptions => ({
  ...options,
  maxNumSeqs: sequences,
  promptsFirst: false,
  sequenceBlocks: 0,
  prefixCaching: false,
  unitTokens: options.blockTokens,
  sharedPrefixTokens: 0,
  policy: 'fcfs',
  reserveFullPrompt: true,
  prefillOnly: false,
});

/** How a server's rounds are scheduled: each is all loops of every sequence, in turn with prompts. */
export const ROUNDS = { of: allLoops(1), weightOf: () => 1, inTurns: true } as const;

export interface LoopRequest {
  /** Chosen by the caller; no two requests in the loop share it. */
  readonly id: number;
  readonly prompt: readonly number[];
  /** Tokens to generate at most. */
  readonly maxTokens: number;
  /** Tokens after which it ends early. */
  readonly endTokens?: readonly number[];
}

interface TokenOut {
  readonly id: number;
  readonly token: number;
  /** True for its last one. */
  readonly ended: boolean;
}

export interface Iteration {
  /** Seconds of the device: its decode step or round, and its prompts, one after the other. */
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
  readonly slot: number;
  readonly out: number[];
  /** Proposals of its last round that it keeps. */
  accepted: number;
  /** Of the decoder; −1 while it waits. */
  sequence: number;
}

/** Tokens of a round up to the end of the answer. */
function keptOf({ request: { maxTokens, endTokens }, out }: Job, tokens: readonly number[]): readonly number[] {
  const end = tokens.findIndex((token) => endTokens?.includes(token));
  return tokens.slice(0, Math.min(end < 0 ? tokens.length : end + 1, maxTokens - out.length));
}

export class ServingLoop {
  private readonly requests = new Requests();
  private readonly schedule: Scheduler;
  private readonly jobs = new Map<number, Job>();
  private readonly free: number[];
  private preempted: number[] = [];
  private stepping = false;

  constructor(
    private readonly engine: SequenceEngine,
    options: LoopOptions,
  ) {
    const { sequences, draft } = engine;
    if (options.maxNumBatchedTokens < sequences)
      throw new UserError(
        `an iteration of ${options.maxNumBatchedTokens} tokens cannot give each of ${sequences} sequences one`,
        'raise the tokens of an iteration, or open fewer sequences',
      );
    this.free = Array.from({ length: sequences }, (_, i) => sequences - 1 - i);
    const own = replicaOptions(options, sequences);
    const listener: Listener = {
      began: (slot) => this.seat(this.jobs.get(slot)!),
      preempted: (slot) => this.preempted.push(this.unseat(slot).request.id),
      ended: (slot) => this.drop(slot),
      token: () => {},
      prefilled: () => {},
    };
    const common = [
      this.requests,
      new WaitingQueue('fcfs', this.requests),
      listener,
      { preemptions: 0, recomputedTokens: 0, lookedUpTokens: 0, hitTokens: 0 },
      Float64Array.from([...new Set([1, options.capTokens])].filter(Number.isFinite)),
    ] as const;
    const accepted = (slot: number): number => this.jobs.get(slot)!.accepted;
    this.schedule = draft
      ? new LoopedScheduler({ ...own, ...ROUNDS, depth: ROUNDS.of, speculation: { ...draft, accepted } }, ...common)
      : new CountedScheduler(own, ...common);
  }

  get active(): number {
    return this.jobs.size;
  }

  /**
   * Adds a request, behind those that wait.
   * @throws UserError for one that can never be served
   */
  submit(request: LoopRequest): void {
    const { id, prompt, maxTokens } = request;
    const { options, waiting } = this.schedule;
    if (prompt.length === 0 || maxTokens < 1)
      throw new UserError(`request ${id} has no prompt or asks for no tokens`, 'give at least one of each');
    // The last token is chosen, and not cached.
    const most = prompt.length + maxTokens - 1;
    // Proposals beyond its end are computed, too.
    if (
      most + (this.engine.draft?.draftTokens ?? 0) > this.engine.contextTokens ||
      blocksOf(most, options) > options.blocks
    )
      throw new UserError(
        `request ${id} may have ${most} tokens, more than the cache holds`,
        'shorten it, or open a longer context',
      );
    if (this.jobOf(id)) throw new UserError(`request ${id} is being served already`, 'give another number');
    const slot = this.requests.add({ ...emptyDraft(), promptTokens: prompt.length, outputTokens: maxTokens });
    this.jobs.set(slot, { request, slot, out: [], accepted: 0, sequence: -1 });
    waiting.push(slot);
  }

  /** Drops a request; between iterations. @returns false where there is none of this number */
  cancel(id: number): boolean {
    if (this.stepping) throw new Error('requests are cancelled between iterations');
    const job = this.jobOf(id);
    if (job) this.stop(job);
    return job !== undefined;
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
      const { schedule } = this;
      this.preempted = [];
      schedule.begin();
      const { count, total, tokens: lengths, before } = schedule.batch.chunks;
      const decoding = schedule.running
        .filter((slot) => !schedule.batch.paused && this.requests.state[slot] === STATE.decode)
        .map((slot) => this.jobs.get(slot)!);
      const made: (readonly [Job, number])[] = [];
      let seconds = 0;
      if (decoding.length > 0) seconds += await this.decode(decoding, made);
      for (let i = 0; i < count; i++)
        seconds += await this.takeIn(this.jobs.get(schedule.chunkSlots[i]!)!, before[i]!, lengths[i]!, made);
      schedule.end();
      const tokens = made.map(([job, token]) => ({ id: job.request.id, token, ended: this.emit(job, token) }));
      return { seconds, tokens, decoded: decoding.length, promptTokens: total, preempted: this.preempted };
    } finally {
      this.stepping = false;
    }
  }

  private async decode(jobs: readonly Job[], made: (readonly [Job, number])[]): Promise<number> {
    const last = new Array<number>(this.engine.sequences).fill(0);
    for (const job of jobs) last[job.sequence] = job.out.at(-1) as number;
    const joining = new Set(jobs.map((job) => job.sequence));
    const result = await this.engine.step(last, (sequence) => joining.has(sequence));
    for (const job of jobs) {
      const kept = keptOf(job, result.tokens[job.sequence]!);
      job.accepted = kept.length - 1;
      for (const token of kept) made.push([job, token]);
    }
    return result.seconds;
  }

  private async takeIn(job: Job, from: number, count: number, made: (readonly [Job, number])[]): Promise<number> {
    const { prompt } = job.request;
    const part = Array.from({ length: count }, (_, i) => {
      const at = from + i;
      return (at < prompt.length ? prompt[at] : job.out[at - prompt.length]) as number;
    });
    const ends = from + count === this.requests.target[job.slot];
    const result = await this.engine.extend(job.sequence, part, ends);
    if (result.token !== null) made.push([job, result.token]);
    return result.seconds;
  }

  /** @returns true for the last token of a request */
  private emit(job: Job, token: number): boolean {
    job.out.push(token);
    const { maxTokens, endTokens } = job.request;
    if (job.out.length === maxTokens) return true;
    if (!endTokens?.includes(token)) return false;
    this.stop(job);
    return true;
  }

  private jobOf(id: number): Job | undefined {
    return [...this.jobs.values()].find(({ request }) => request.id === id);
  }

  private seat(job: Job): void {
    job.sequence = this.free.pop() as number;
    // Draws of a request depend neither on the sequence that it got nor on its preemptions.
    this.engine.forget(job.sequence, job.request.id, job.out.length);
  }

  private unseat(slot: number): Job {
    const job = this.jobs.get(slot)!;
    if (job.sequence >= 0) {
      this.engine.forget(job.sequence, job.request.id, 0);
      this.free.push(job.sequence);
    }
    job.sequence = -1;
    return job;
  }

  private drop(slot: number): void {
    this.unseat(slot);
    this.jobs.delete(slot);
    this.requests.remove(slot);
  }

  /** Ends a request before its last token. */
  private stop({ slot }: Job): void {
    this.schedule.cancel(slot);
    this.drop(slot);
  }
}
