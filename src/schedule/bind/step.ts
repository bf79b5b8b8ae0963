/** The frame of decode steps: a row a sequence, and which of the cached tokens each operation reads. */
import { latentOfLoop, ranksOfLoops } from '../../codecs/hla.js';
import type { Streams } from '../../codecs/codec.js';
import { isHybrid } from '../../codecs/registry.js';
import { reindexes } from '../../eviction/policy.js';
import type { Placement } from '../../../kernels/placement.js';
import type { RunOptions, Span } from '../../../kernels/attention-options.js';
import { keepsState } from '../../geometry/geometry.js';
import { queryWidth, readsFirstRows, recentTokens, spansFrom, type CachedTokens } from '../buffers.js';
import { streamsIn } from '../streams.js';
import { divideSpan, packedSpan, spanOf, type CacheMap, type CachePart } from '../cache-map.js';
import { branchWidth, readsLatents, windowOf } from '../eviction-ops.js';
import type { Place, Visit } from '../expand.js';
import { Frame, type ExactRows, type Setting, type Target } from './frame.js';
import { placed, type BufferRef, type CacheRef, type CacheRole, type RowAxis, type WeightRef } from './refs.js';

/** Attention over the window of a later loop, and its merge. */
const LOOP_WINDOW: readonly string[] = ['attend-window', 'merge-window'];

export class StepFrame extends Frame {
  /** The largest cache of a sequence in the planned steps. */
  private readonly longest: Span;

  /** @param context tokens of the longest sequence that steps are planned for */
  constructor(setting: Setting, caches: CacheMap, context: number) {
    super(setting, caches, setting.c.geometry.adapter ? 4 : keepsState(setting.c.geometry) ? 3 : 2);
    this.longest = spanOf(setting.c.eviction, caches.slots, context);
  }

  buffer(label: string, index?: number): BufferRef {
    return index === undefined ? { buffer: label } : { buffer: label, index };
  }

  firstRow(): number {
    return 0;
  }

  firstPosition(): number {
    return 0;
  }

  get lastRows(): Placement {
    return { offset: 0, stride: this.c.geometry.hidden };
  }

  target(visit: Visit, role: CacheRole, loop?: number, slots = this.caches.slots): Target {
    const { capacity, pinned, ring, sinks } = slots;
    const { first } = this.partOf(visit);
    return {
      cache: this.cacheOf(visit, role, loop),
      options: { capacity, pinned, ring, sinks, firstStart: first },
      row: first,
    };
  }

  recentTarget(visit: Visit, role: CacheRole): Target {
    return this.target(visit, role, undefined, this.caches.recentSlots);
  }

  /** The sequences that an operation on a block's caches works on. */
  partOf({ part, place }: Visit): CachePart {
    const parts = this.caches.parts(place?.block.name ?? 'core');
    return parts[part] ?? { index: 0, first: 0, count: this.batch };
  }

  /** Queries from a part's first sequence on, which has `floats` of them: a second set lies behind those of all. */
  queries({ first }: CachePart, floats: number): BufferRef {
    return { ...this.buffer('queries'), offset: floats * first };
  }

  /** Which of the cached tokens an operation on a block's caches reads. */
  tokensOf({ op, place }: Visit): CachedTokens {
    if (LOOP_WINDOW.includes(op.label)) return 'recent';
    if (place && streamsIn(this.c, place.block)) return 'packed';
    if (!place || windowOf(this.c, place.block) === 0) return 'all';
    return op.label === 'attend-recent' ? 'recent' : 'older';
  }

  /** Those of each sequence of a part. */
  spans({ first }: CachePart, visit: Visit): BufferRef {
    return this.buffer(spansFrom(first, this.tokensOf(visit)));
  }

  /** Cached rows of a place that attention reads. */
  cached(visit: Visit, role: CacheRole): CacheRef {
    const { block, loop } = placed(visit);
    const first = readsFirstRows(this.c, block) && this.tokensOf(visit) === 'all';
    return this.cacheOf(visit, role, first ? 0 : loop);
  }

  /**
   * What every attention over cached tokens binds beside queries and rows. Split partials of a part have been merged
   * before the next one writes its own.
   */
  attends(visit: Visit): Record<'partials' | 'spans' | 'scores', BufferRef> {
    const part = this.partOf(visit);
    return { partials: this.partials, spans: this.spans(part, visit), scores: this.scores(part) };
  }

  get partials(): BufferRef {
    return { ...this.buffer('partials'), words: 'planned' };
  }

  /** Where an operation's tokens are. `second`: pinned tokens are scored by a second set of queries. */
  run(visit: Visit, second = false): RunOptions {
    const tokens = this.tokensOf(visit);
    const { capacity, pinned } = tokens === 'recent' ? this.caches.recentSlots : this.caches.slots;
    const longest =
      tokens === 'all'
        ? this.longest
        : tokens === 'packed'
          ? packedSpan(this.c, this.longest.ring)
          : divideSpan(this.longest, recentTokens(this.c))[tokens];
    return {
      capacity,
      pinned,
      ...(visit.op.division ? { division: visit.op.division } : {}),
      spans: Array.from({ length: this.partOf(visit).count }, () => longest),
      ...(second && pinned > 0 ? { pinnedQuery: true, queriesApart: this.batch * this.c.geometry.heads } : {}),
    };
  }

  /** The oldest exact tokens of a part's sequences are packed where a group of them is too many. */
  exactRows(visit: Visit, axis: RowAxis): ExactRows {
    const { tail } = streamsIn(this.c, placed(visit).block) as Streams;
    const part = this.partOf(visit);
    const { capacity: slots } = this.caches.recentSlots;
    return {
      options: { sequences: part.count, slots, full: tail.most + 1 },
      binds: { spans: this.spans(part, visit), rows: this.cacheOf(visit, axis) },
    };
  }

  /** Positions of a set of queries: StreamingLLM's second one is at its places inside the cache. */
  positionsOf(set: 0 | 1): { positions: BufferRef } {
    return { positions: this.buffer(set === 0 ? 'positions' : 'places') };
  }

  /** Width of the latents of an axis that a loop reads. */
  readRank(loop: number, axis: RowAxis): number {
    if (!isHybrid(this.c.codec)) return this.rankOf(axis);
    const { rankK, rankV } = ranksOfLoops(this.c.codec)[latentOfLoop(loop)];
    return axis === 'key' ? rankK : rankV;
  }

  /** Matrices of a loop that bring queries to latents, or latents of values to heads. */
  upMap({ layer, loop }: Place, axis: RowAxis): WeightRef {
    if (isHybrid(this.c.codec)) return { weights: 'map', layer, loop, map: axis };
    return { weights: axis === 'key' ? 'up-rows' : 'up-columns', layer, loop, axis };
  }

  /** Means of a loop's values; rotated latents have none. */
  valueMeans({ layer, loop }: Place): WeightRef | BufferRef {
    return isHybrid(this.c.codec) ? this.buffer('no means') : { weights: 'mean', layer, loop, axis: 'value' };
  }

  /** Width of a query as attention reads it: of latents where it is absorbed. */
  queryWidth(place: Place): number {
    return place.block.name === 'core' ? queryWidth(this.c) : this.c.geometry.headDim;
  }

  /** Floats of all heads of a token. */
  get headWords(): number {
    return this.c.geometry.heads * this.c.geometry.headDim;
  }

  /** StreamingLLM scores sinks by a second query where keys are cached rotated. */
  secondQuery({ block }: Place): boolean {
    return reindexes(this.c.eviction) && (!readsLatents(this.c, block) || branchWidth(this.c, block) > 0);
  }

  /** Rows that are rebuilt for a part of the sequences. */
  rebuiltRows(axis: RowAxis, part: number): BufferRef {
    return { ...this.buffer(`rebuilt ${axis}s`), part };
  }
}
