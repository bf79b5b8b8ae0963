/**
 * What the operations of a pass read and write: weights, caches, and activations of n rows. A decode step has a row a
 * sequence (step.ts), a prompt one a token (prompt.ts). Buffers are asked for by the label that they have in a step.
 */
import type { AppendOptions } from '../../../kernels/options.js';
import { latentOfLoop, ranksOfLoops } from '../../codecs/hla.js';
import { isHybrid } from '../../codecs/registry.js';
import { weighsTokens } from '../../eviction/policy.js';
import { GpuError, partOf, type Buffer, type Device, type OperationPlan } from '../../gpu/index.js';
import { anchoredIn, latentsOf, spansLoops } from '../../schedule/configuration.js';
import { packedRow } from '../../schedule/buffers.js';
import type { Place, Visit } from '../../schedule/expand.js';
import { meanRow } from '../../schedule/rows.js';
import type { Configuration } from '../../schedule/schedule.js';
import type { CodecAxis } from '../tensors.js';
import type { Allocations } from './allocations.js';
import type { CachePart, CacheRole, Caches } from './caches.js';
import type { Weights } from './weights.js';

/** A planned call and its buffers, by the plan's names. */
export interface Dispatch {
  readonly plan: OperationPlan;
  readonly buffers: Readonly<Record<string, Buffer>>;
}

/** A vector of every row inside a buffer of rows, in floats: the first one, and from a row to the next. */
export interface Vectors {
  readonly offset: number;
  readonly stride: number;
}

/** A buffer, and where an operation's vectors are in it. */
export interface Placed {
  readonly rows: Buffer;
  readonly at: Vectors;
}

/** Rows of a cache that an operation writes. `row`: the first of its own among those of the buffer that it reads. */
export interface Target {
  readonly cache: Buffer;
  readonly options: AppendOptions;
  readonly row?: number;
}

/** The place of an operation that only stacks have. */
export function placed(visit: Visit): Place {
  if (!visit.place) throw new GpuError('unsupported', `${visit.op.label} belongs into a layer`);
  return visit.place;
}

/** The loop whose rows an operation works on. */
export const loopOf = (visit: Visit): number => visit.op.loop ?? placed(visit).loop - (visit.op.loopsBack ?? 0);

export abstract class Machine {
  /** The stream that layers add to, and the output of norms; a norm between loops exchanges them. */
  residual: Buffer;
  normed: Buffer;
  /** The stream as the prelude left it, where an adapter mixes it in. */
  preludeOutput: Buffer | undefined;
  /** The stream of the loop before, which the adapter mixes it with. */
  state: Buffer | undefined;
  /** Where a pass runs stacks in turn: which of them runs, and the state of the other. */
  private stack = 1;
  otherState: Buffer | undefined;

  constructor(
    readonly device: Device,
    readonly c: Configuration,
    readonly batch: number,
    readonly contextTokens: number,
    readonly normEpsilon: number,
    readonly allocations: Allocations,
    readonly weights: Weights,
    readonly caches: Caches,
  ) {
    this.residual = allocations.get('residual 0');
    this.normed = allocations.get('residual 1');
  }

  abstract buffer(label: string): Buffer;
  /** The first of an operation's rows among those of the streams. */
  abstract firstRow(visit: Visit): number;
  /** Added to the positions of an operation's rows, which are in the buffer `positions`. */
  abstract firstPosition(visit: Visit): number;
  /** The rows of the stream from which logits are computed. */
  abstract readonly lastRows: Vectors;
  /** The sequences whose caches an operation binds. */
  abstract partOf(visit: Visit): CachePart;
  /** Where an operation's rows join the cache, and the window beside latents. */
  abstract target(visit: Visit, role: CacheRole, loop?: number): Target;
  abstract recentTarget(visit: Visit, role: CacheRole): Target;

  /** An operation's rows among all that are side by side in a buffer. */
  rowsOf(visit: Visit, width = this.c.geometry.hidden): Vectors {
    return { offset: this.firstRow(visit) * width, stride: width };
  }

  /** The roles of the streams at the start of a pass. */
  beginPass(): void {
    this.residual = this.buffer('residual 0');
    this.normed = this.buffer('residual 1');
    this.preludeOutput = undefined;
    this.state = undefined;
    this.stack = 1;
    this.otherState = this.c.geometry.stacks ? this.buffer('residual 2') : undefined;
  }

  /** The state of a stack becomes the stream. */
  enterStack(stack: number): void {
    if (stack === this.stack) return;
    this.stack = stack;
    [this.residual, this.otherState] = [this.otherState as Buffer, this.residual];
  }

  /** A loop with an adapter writes a stream that it does not read. Where norms have the last one, it is theirs. */
  beginLoop(first: boolean): void {
    if (first) this.preludeOutput = this.residual;
    this.state = first ? undefined : this.residual;
    const used = [this.preludeOutput, this.residual, this.normed];
    const free = this.allocations.startingWith('residual ').find((stream) => !used.includes(stream));
    [this.residual, this.normed] = free ? [free, this.normed] : [this.normed, this.residual];
  }

  /** Widths and places of the projection's output: a gate, queries, keys, values, queries of the rotary branch. */
  get packed(): { row: number; gate: Vectors; queries: Vectors; keys: Vectors; values: Vectors; branch: Vectors } {
    const { heads, kvHeads, headDim, attentionGate } = this.c.geometry;
    const row = packedRow(this.c);
    const first = attentionGate ? heads : 0;
    const at = (before: number): Vectors => ({ offset: before * headDim, stride: row });
    return {
      row,
      gate: at(0),
      queries: at(first),
      keys: at(first + heads),
      values: at(first + heads + kvHeads),
      branch: at(first + heads + 2 * kvHeads),
    };
  }

  /** New keys or values of full width. */
  projected(axis: CodecAxis): Placed {
    return { rows: this.buffer('query key value'), at: this.packed[`${axis}s`] };
  }

  /** The accumulator of a layer, or the one that all layers use in turn. */
  private ownLayer(visit: Visit): number {
    return spansLoops(this.c) ? placed(visit).layer : 0;
  }

  rankOf(axis: CodecAxis): number {
    return (axis === 'key' ? this.c.codec.rankK : this.c.codec.rankV) as number;
  }

  /** Latent scalars of a token in one layer and loop. */
  latentRow(axis: CodecAxis): number {
    return latentsOf(this.c) * this.rankOf(axis);
  }

  /** Accumulated latents of an operation's rows. */
  latents(visit: Visit, axis: CodecAxis): Placed {
    if (isHybrid(this.c.codec)) return this.hybridLatents(visit, axis);
    return {
      rows: this.buffer(`latent ${axis} ${this.ownLayer(visit)}`),
      at: this.rowsOf(visit, this.latentRow(axis)),
    };
  }

  /** Rotated latents that the visit's loop adds to, keys and values side by side. */
  private hybridLatents(visit: Visit, axis: CodecAxis): Placed {
    const { layer, loop } = placed(visit);
    const part = latentOfLoop(loop);
    const { rankK, rankV } = ranksOfLoops(this.c.codec)[part];
    const { offset, stride } = this.rowsOf(visit, rankK + rankV);
    const rows = this.buffer(part === 'first' ? 'first latents' : `shared latents ${layer}`);
    return { rows, at: { offset: offset + (axis === 'value' ? rankK : 0), stride } };
  }

  /** The mean over the loops of an operation's rows, keys and values side by side, or one of them. */
  means(visit: Visit, axis: CodecAxis = 'key'): Placed {
    const { offset, stride } = this.rowsOf(visit, meanRow(this.c));
    const at = { offset: offset + (axis === 'value' ? stride / 2 : 0), stride };
    return { rows: this.buffer(`mean rows ${placed(visit).layer}`), at };
  }

  /**
   * An operation's rows that wait for further loops, and floats from a loop to the next: keys and values side by side.
   */
  waiting(visit: Visit, axis: CodecAxis = 'key'): Placed & { readonly loopStride: number } {
    const { block, layer } = placed(visit);
    const loopStride = meanRow(this.c);
    const { offset, stride } = this.rowsOf(visit, anchoredIn(this.c, block) * loopStride);
    const at = { offset: offset + (axis === 'value' ? loopStride / 2 : 0), stride };
    return { rows: this.buffer(`held rows ${layer}`), at, loopStride };
  }

  get branchHeads(): number {
    return this.c.branch.perHead ? this.c.geometry.kvHeads : 1;
  }

  /** Keys of the rotary branch. @param row the first of them; those of the operation's rows unless given */
  branchKeys(visit: Visit, row = this.firstRow(visit)): Placed {
    const stride = this.branchHeads * this.c.branch.width;
    return { rows: this.buffer(`branch key ${this.ownLayer(visit)}`), at: { offset: row * stride, stride } };
  }

  /** Query heads that share a KV head. */
  get group(): number {
    return this.c.geometry.heads / this.c.geometry.kvHeads;
  }

  /** The words of a part's sequences in a buffer in which each has as many. */
  own(label: string, { first, count }: CachePart, words: number): Buffer {
    return partOf(this.buffer(label), 4 * words * first, 4 * words * count);
  }

  /** Scores of a part's sequences, kept for H2O only; without, the binding takes a buffer that is not touched. */
  scores(part: CachePart): Buffer {
    return weighsTokens(this.c.eviction)
      ? this.own('scores', part, this.c.geometry.heads * this.caches.slots.capacity)
      : this.buffer('unused output');
  }

  /** H2O's state of the row set that a place belongs to: a buffer for each layer and loop that evicts on its own. */
  evictionBuffer(what: 'mass' | 'positions', place: Place, { index }: CachePart, loop = place.loop): Buffer {
    return this.buffer(`kept ${what} ${place.block.name} ${this.caches.unit(place, loop)}${partSuffix(index)}`);
  }

  /** Angles for vectors of a width. */
  turns(width: number): Buffer {
    return this.buffer(`turns ${width}`);
  }

  /** Rotary tables reach as far as the cache does, and one step beyond. */
  get positions(): number {
    return this.contextTokens + 1;
  }
}

/** Behind the label of a buffer that each part of the sequences has. */
export const partSuffix = (part: number): string => (part > 0 ? ` part ${part}` : '');
