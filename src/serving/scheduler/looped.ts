/**
 * A schedule of tokens that take different numbers of loops (depth.ts), or that come in rounds of proposals
 * (speculation.ts): nothing is counted for all sequences at once. Prompts take all loops. An iteration is one pass over
 * the looped layers, or all of them. There is no prefix cache, since what is cached of a token depends on its depth.
 */
import type { Draft } from '../../codecs/verification.js';
import { DepthDraws, type Depth } from '../depth.js';
import type { ReplicaOptions } from './options.js';
import { STATE } from './requests.js';
import { Scheduler } from './scheduler.js';

/** Rounds of proposals. */
interface Rounds extends Draft {
  /** Asked at the end of a round: proposals of it that a request keeps. */
  readonly accepted: (slot: number) => number;
}

export interface LoopedOptions extends ReplicaOptions {
  readonly depth: Depth;
  /** Rounds in place of tokens, each of all loops; null without. */
  readonly speculation: Rounds | null;
  /** Cache of a token of so many loops, over that of one of all loops, where what it left out is not stored. */
  readonly weightOf: (loops: number) => number;
}

/** A sequence that decodes. */
export interface Sequence {
  readonly slot: number;
  /** Cached tokens. */
  cached: number;
  /** Cached tokens in tokens of all loops. */
  held: number;
  /** Blocks that it has. */
  blocks: number;
  /** Of the current token: its loops, and those that are done. 0 of 0: none has begun. */
  loops: number;
  done: number;
  /** Loops that tokens which left early still run, one entry a token. */
  fills: number[];
  /** A segment of the price at or before that of its length (batch.ts). */
  segment: number;
}

export class LoopedScheduler extends Scheduler<LoopedOptions> {
  override readonly loops = this.options.depth.probabilities.length;
  override readonly passes = this.options.speculation || this.options.depth.batching === 'steps' ? this.loops : 1;
  private readonly bySlot: (Sequence | undefined)[] = [];
  /** Null where it has to be found anew. */
  private inOrder: Sequence[] | null = null;
  /** Sequences whose next token has not begun. */
  private beginning: Sequence[] = [];
  decoding = 0;
  private readonly draws = new DepthDraws(this.options.depth, this.options.depth.seed);

  /** Sequences that decode, in the order in which they began. */
  get sequences(): readonly Sequence[] {
    if (this.inOrder) return this.inOrder;
    const found: Sequence[] = [];
    for (const slot of this.running) {
      const sequence = this.bySlot[slot];
      if (sequence) found.push(sequence);
    }
    return (this.inOrder = found);
  }

  protected needed(): number {
    let blocks = 0;
    for (const one of this.beginning) blocks += this.blocksToBegin(one.slot, one.held) - one.blocks;
    return blocks;
  }

  protected beginTokens(): void {
    for (const one of this.beginning) this.beginToken(one);
    this.beginning.length = 0;
  }

  /** Proposals beyond an answer's end take no room. */
  protected blocksToBegin(slot: number, held: number): number {
    const { output, emitted } = this.requests;
    const left = Math.max(1, output[slot]! - emitted[slot]!);
    return this.blocksFor(held + Math.min(1 + (this.options.speculation?.draftTokens ?? 0), left));
  }

  private beginToken(sequence: Sequence): void {
    const { slot, held } = sequence;
    this.resize(sequence, this.blocksToBegin(slot, held));
    sequence.loops = this.draws.of(this.requests.number[slot]!, this.requests.emitted[slot]!);
    sequence.done = 0;
  }

  protected decode(slot: number, length: number, now: boolean): void {
    const blocks = now ? 0 : this.blocksFor(length);
    const sequence = { slot, cached: length, held: length, blocks, loops: 0, done: 0, fills: [], segment: 0 };
    this.bySlot[slot] = sequence;
    this.decoding++;
    this.inOrder = null;
    this.requests.state[slot] = STATE.decode;
    if (now) this.beginToken(sequence);
    else this.beginning.push(sequence);
  }

  protected stop(slot: number): number {
    const sequence = this.bySlot[slot]!;
    this.bySlot[slot] = undefined;
    this.decoding--;
    this.inOrder = null;
    if (sequence.loops === 0) this.beginning = this.beginning.filter((one) => one !== sequence);
    this.requests.computed[slot] = sequence.cached;
    return sequence.blocks;
  }

  protected endTokens(): void {
    for (const sequence of this.sequences) {
      sequence.done = Math.min(sequence.loops, sequence.done + this.passes);
      if (sequence.fills.length > 0)
        sequence.fills = sequence.fills.map((left) => left - this.passes).filter((left) => left > 0);
      if (sequence.done === sequence.loops) this.endToken(sequence);
    }
  }

  /** The current token has left the loops. */
  private endToken(sequence: Sequence): void {
    const { depth, weightOf, speculation } = this.options;
    const { output, emitted } = this.requests;
    const { slot, loops } = sequence;
    // Proposals beyond the answer's end are dropped.
    const tokens = Math.min(1 + (speculation?.accepted(slot) ?? 0), output[slot]! - emitted[slot]!);
    sequence.cached += tokens;
    sequence.held += depth.skippedKv === 'share' ? weightOf(loops) : tokens;
    if (depth.skippedKv === 'recompute' && depth.batching === 'loops' && loops < this.loops)
      sequence.fills.push(this.loops - loops);
    this.resize(sequence, this.blocksFor(sequence.held));
    sequence.loops = 0;
    sequence.done = 0;
    if (!this.emit(slot, tokens)) this.beginning.push(sequence);
  }

  private resize(sequence: Sequence, blocks: number): void {
    if (blocks > sequence.blocks) this.pool.take(blocks - sequence.blocks);
    else this.pool.give(sequence.blocks - blocks);
    sequence.blocks = blocks;
  }
}
