/**
 * What a server keeps free for answers that are being written: a share of what they may still become, which falls while
 * all goes well and is estimated anew where a sequence had to give way (SGLang, srt/managers/schedule_policy.py
 * PrefillAdder, scheduler.py batch_is_full, schedule_batch.py retract_decode; 00550cd).
 */
import type { ReplicaOptions } from './options.js';
import { STATE, type Requests } from './requests.js';

export interface AnswerShare {
  readonly initial: number;
  readonly least: number;
  /** Decode steps from the one to the other. */
  readonly steps: number;
  /** Tokens of an answer that count at most. */
  readonly mostTokens: number;
  /** Steps for which those that stay must have room where one gave way. */
  readonly ahead: number;
}

/** SGLang's constants (srt/environ.py, SGLANG_INIT_NEW_TOKEN_RATIO and those after it; read 2026-11-28). */
const SGLANG: AnswerShare = { initial: 0.7, least: 0.7 * 0.14, steps: 600, mostTokens: 4096, ahead: 20 };

/** The share of answers for which a server keeps room when a request begins; null where it keeps none. */
export const answerShareOf = (stack: string | null): AnswerShare | null => (stack === 'sglang' ? SGLANG : null);

/** What it asks the scheduler. */
interface Schedule {
  readonly options: ReplicaOptions;
  readonly requests: Requests;
  /** Requests that have a place. */
  readonly running: readonly number[];
  /** Tokens of a request's answer that are written. */
  written(slot: number): number;
}

export class Outlook {
  /** Why no request may begin until one leaves, as `limit` of the scheduler; null where one may. */
  full: number | null = null;
  private share: number;

  constructor(
    private readonly o: AnswerShare,
    private readonly of: Schedule,
  ) {
    this.share = o.initial;
  }

  /** Blocks to keep free for the answers of all that run. Of those that begin in this iteration all tokens count. */
  kept(): number {
    const { state } = this.of.requests;
    return this.sum((slot) => this.blocksFor(slot) * (state[slot] === STATE.decode ? this.share : 1));
  }

  /** Blocks to keep free for the answer of a request that begins. */
  blocksFor(slot: number): number {
    const { options, requests } = this.of;
    if (options.prefillOnly) return 0;
    return Math.min(requests.output[slot]! - this.of.written(slot), this.o.mostTokens) / options.blockTokens;
  }

  /** Blocks that so many sequences need for the next steps; a last one gives way to nobody. */
  ahead(sequences: number): number {
    return sequences > 1 ? (sequences * this.o.ahead) / this.of.options.blockTokens : 0;
  }

  /** Nothing runs. */
  rest(): void {
    this.share = this.o.initial;
    this.full = null;
  }

  /** A decode step begins. @param gaveWay sequences had to give way for it */
  step(gaveWay: boolean): void {
    const { initial, least, steps, ahead } = this.o;
    if (!gaveWay) this.share = Math.max(least, this.share - (initial - least) / steps);
    else {
      const asked = this.sum((slot) => this.of.requests.output[slot]!);
      const written = this.sum((slot) => this.of.written(slot));
      this.share = Math.min(1, (written + ahead * this.of.running.length) / (asked + 1));
    }
  }

  private sum(of: (slot: number) => number): number {
    let total = 0;
    for (const slot of this.of.running) total += of(slot);
    return total;
  }
}
