/**
 * What the operations of a pass bind: activations of n rows, streams and caches. A decode step has a row a sequence
 * (step.ts), a prompt one a token (prompt.ts). Buffers go by the label that they have in a step.
 */
import { latentOfLoop, ranksOfLoops } from '../../codecs/hla.js';
import { isHybrid } from '../../codecs/registry.js';
import { keepsState } from '../../geometry/geometry.js';
import type { AppendOptions, AppendStreamsOptions } from '../../../kernels/cache-options.js';
import type { Placement } from '../../../kernels/placement.js';
import type { RopeOptions, SampleOptions } from '../../../kernels/options.js';
import { packedRow } from '../buffers.js';
import type { CacheMap, CachePart } from '../cache-map.js';
import {
  anchoredIn,
  branchHeadsOf,
  latentsOf,
  rankOf,
  spansLoops,
  type Axis,
  type Configuration,
  type Visit,
} from '../configuration.js';
import { meanRow } from '../facts.js';
import { placed, type Bound, type BufferRef, type CacheRef, type CacheRole, type Placed, type Ref } from './refs.js';

/** Rows of a cache that an operation writes. `row`: the first of its own among those of the buffer that it reads. */
export interface Target {
  readonly cache: CacheRef | BufferRef;
  readonly options: AppendOptions;
  readonly row?: number;
}

/** Exact rows of which groups are packed: part of a launch's options, and of what it binds. */
export interface ExactRows {
  readonly options: Pick<AppendStreamsOptions, 'sequences' | 'groups' | 'slots' | 'full' | 'firstSequence'>;
  readonly binds: Readonly<Record<string, CacheRef | BufferRef>>;
}

/** What all passes of a decoder have in common. */
export interface Setting {
  readonly c: Configuration;
  readonly batch: number;
  readonly contextTokens: number;
  readonly normEpsilon: number;
  /** Temperature 0: greedy. */
  readonly sampling: SampleOptions;
}

export abstract class Frame {
  readonly c: Configuration;
  readonly batch: number;
  /** The stream that layers add to, and the output of norms; a norm between loops exchanges them. */
  residual = stream(0);
  normed = stream(1);
  /** The stream as the prelude left it, where an adapter mixes it in. */
  preludeOutput: BufferRef | undefined;
  /** The stream of the loop before, which the adapter mixes it with. */
  state: BufferRef | undefined;
  /** Where a pass runs stacks in turn: which of them runs, and the other's state; or that with which a loop began. */
  private stack = 1;
  otherState: BufferRef | undefined;

  constructor(
    readonly setting: Setting,
    readonly caches: CacheMap,
    /** Streams that there are buffers for. */
    private readonly streams: number,
  ) {
    this.c = setting.c;
    this.batch = setting.batch;
  }

  abstract buffer(label: string, index?: number): BufferRef;
  /** The first of an operation's rows among those of the streams. */
  firstRow(_: Visit): number {
    return 0;
  }
  /** Added to the positions of an operation's rows, which are in the buffer `positions`. */
  firstPosition(_: Visit): number {
    return 0;
  }
  /** The rows of the stream from which logits are computed. */
  abstract readonly lastRows: Placement;
  /** The sequences whose caches an operation binds. */
  abstract partOf(visit: Visit): CachePart;
  /** Where an operation's rows join the cache, and the window beside latents. */
  abstract target(visit: Visit, role: CacheRole, loop?: number): Target;
  abstract recentTarget(visit: Visit, role: CacheRole): Target;
  /** Where the rows lie that an operation packs. */
  abstract exactRows(visit: Visit, axis: Axis): ExactRows;

  /** Rotates queries to where attention reads them, with new keys in place; and those of the rotary branch. */
  abstract rotateQueries(visit: Visit): Bound;
  abstract rotateBranch(visit: Visit): Bound;

  /** An operation's rows among all that are side by side in a buffer. */
  rowsOf(visit: Visit, width = this.c.geometry.hidden): Placement {
    return { offset: this.firstRow(visit) * width, stride: width };
  }

  /** The roles of the streams at the start of a pass. */
  beginPass(): void {
    this.residual = stream(0);
    this.normed = stream(1);
    this.preludeOutput = undefined;
    this.state = undefined;
    this.stack = 1;
    this.otherState = keepsState(this.c.geometry) ? stream(2) : undefined;
  }

  /** The state of a stack becomes the stream. */
  enterStack(stack: number): void {
    if (stack === this.stack) return;
    this.stack = stack;
    [this.residual, this.otherState] = [this.otherState as BufferRef, this.residual];
  }

  /** A loop with an adapter writes a stream that it does not read. Where norms have the last one, it is theirs. */
  beginLoop(first: boolean): void {
    if (first) this.preludeOutput = this.residual;
    this.state = first ? undefined : this.residual;
    const used = [this.preludeOutput, this.residual, this.normed].map((of) => of?.index);
    const free = Array.from({ length: this.streams }, (_, i) => i).find((i) => !used.includes(i));
    [this.residual, this.normed] = free === undefined ? [this.normed, this.residual] : [stream(free), this.normed];
  }

  exchangeStreams(): void {
    [this.residual, this.normed] = [this.normed, this.residual];
  }

  /** Widths and places of the projection's output: a gate, queries, keys, values, queries of the rotary branch. */
  get packed(): Record<'gate' | 'queries' | 'keys' | 'values' | 'branch', Placement> {
    const { heads, kvHeads, headDim, attentionGate } = this.c.geometry;
    const first = attentionGate ? heads : 0;
    const at = (before: number): Placement => ({ offset: before * headDim, stride: packedRow(this.c) });
    return {
      gate: at(0),
      queries: at(first),
      keys: at(first + heads),
      values: at(first + heads + kvHeads),
      branch: at(first + heads + 2 * kvHeads),
    };
  }

  /** Queries, or what else packed rows have. */
  inPacked(what: keyof Frame['packed']): Placed {
    return { rows: this.buffer('query key value'), at: this.packed[what] };
  }

  /** New keys or values of full width. */
  projected(axis: Axis): Placed {
    return this.inPacked(`${axis}s`);
  }

  /** The accumulator of a layer, or the one that all layers use in turn. */
  private ownLayer(visit: Visit): number {
    return spansLoops(this.c) ? placed(visit).layer : 0;
  }

  /** Latent scalars of a token in one layer and loop. */
  latentRow(axis: Axis): number {
    return latentsOf(this.c) * rankOf(this.c, axis);
  }

  /** Accumulated latents of an operation's rows. */
  latents(visit: Visit, axis: Axis): Placed {
    if (isHybrid(this.c.codec)) return this.hybridLatents(visit, axis);
    return {
      rows: this.buffer(`latent ${axis}`, this.ownLayer(visit)),
      at: this.rowsOf(visit, this.latentRow(axis)),
    };
  }

  /** Rotated latents that the visit's loop adds to, keys and values side by side. */
  private hybridLatents(visit: Visit, axis: Axis): Placed {
    const { layer, loop } = placed(visit);
    const part = latentOfLoop(loop);
    const { rankK, rankV } = ranksOfLoops(this.c.codec)[part];
    const { offset, stride } = this.rowsOf(visit, rankK + rankV);
    const rows = part === 'first' ? this.buffer('first latents') : this.buffer('shared latents', layer);
    return { rows, at: { offset: offset + (axis === 'value' ? rankK : 0), stride } };
  }

  /** The mean over the loops of an operation's rows, keys and values side by side, or one of them. */
  means(visit: Visit, axis: Axis = 'key'): Placed {
    const { offset, stride } = this.rowsOf(visit, meanRow(this.c));
    const at = { offset: offset + (axis === 'value' ? stride / 2 : 0), stride };
    return { rows: this.buffer('mean rows', placed(visit).layer), at };
  }

  /** An operation's rows that wait for further loops, keys and values side by side; floats from loop to loop. */
  waiting(visit: Visit, axis: Axis = 'key'): Placed & { readonly loopStride: number } {
    const { block, layer } = placed(visit);
    const loopStride = meanRow(this.c);
    const { offset, stride } = this.rowsOf(visit, anchoredIn(this.c, block) * loopStride);
    const at = { offset: offset + (axis === 'value' ? loopStride / 2 : 0), stride };
    return { rows: this.buffer('held rows', layer), at, loopStride };
  }

  /** Keys of the rotary branch. @param row the first of them; those of the operation's rows unless given */
  branchKeys(visit: Visit, row = this.firstRow(visit)): Placed {
    const stride = branchHeadsOf(this.c) * this.c.branch.width;
    return { rows: this.buffer('branch key', this.ownLayer(visit)), at: { offset: row * stride, stride } };
  }

  /** The words of an operation's sequences in a buffer in which each has as many. */
  own(label: string, visit: Visit, words: number): BufferRef {
    const { first, count } = this.partOf(visit);
    return { ...this.buffer(label), offset: words * first, words: words * count };
  }

  /** Scores of an operation's sequences, one a query head and slot. */
  scores(visit: Visit): BufferRef {
    return this.own('scores', visit, this.c.geometry.heads * this.caches.slots.capacity);
  }

  /** H2O's state of the row set that a place belongs to: a buffer for each layer and loop that evicts on its own. */
  evicting(what: 'mass' | 'positions', visit: Visit, loop?: number): BufferRef {
    const place = placed(visit);
    const unit = this.caches.unit(place, loop ?? place.loop);
    return { ...this.buffer(`kept ${what} ${place.block.name}`, unit), part: this.partOf(visit).index };
  }

  /** Cached rows of an operation's place. */
  cacheOf(visit: Visit, cache: CacheRole, loop = placed(visit).loop): CacheRef {
    return { cache, place: placed(visit), loop, part: this.partOf(visit).index };
  }

  /** Rotary options that all calls share. Tables reach as far as the cache does, and one step beyond. */
  get rotary(): { ropeBase: number; positions: number } {
    return { ropeBase: this.c.geometry.rope.theta, positions: this.setting.contextTokens + 1 };
  }

  /** Rotation by rows' positions, in place or to a target. @param binds buffers in place of a step's */
  rotate(
    visit: Visit,
    { rows, at }: Placed,
    width: number,
    more: RopeOptions = {},
    binds: Readonly<Record<string, Ref>> = {},
  ): Bound {
    return {
      options: { ...this.rotary, rope: { data: at, positionOffset: this.firstPosition(visit), ...more } },
      binds: {
        positions: this.buffer('positions'),
        turns: this.buffer(`rotary table ${width}`),
        data: rows,
        target: this.buffer(more.target ? 'queries' : 'unused output'),
        ...binds,
      },
    };
  }
}

const stream = (index: number): BufferRef => ({ buffer: 'residual', index });
