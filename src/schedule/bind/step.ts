/** The frame of decode steps: a row a sequence, and which of the cached tokens each operation reads. */
import type { Streams } from '../../codecs/codec.js';
import type { Placement } from '../../../kernels/placement.js';
import type { RunOptions, Span } from '../../../kernels/attention-options.js';
import type { RopeOptions } from '../../../kernels/options.js';
import { weighsTokens } from '../../eviction/policy.js';
import { keepsState } from '../../geometry/geometry.js';
import { queryWidth, readsFirstRows, recentTokens, spansFrom, type CachedTokens } from '../buffers.js';
import { divideSpan, packedSpan, spanOf, type CacheMap, type CachePart } from '../cache-map.js';
import { rankOf, type Axis, type Visit } from '../configuration.js';
import { streamsIn } from '../facts.js';
import { Frame, type ExactRows, type Setting, type Target } from './frame.js';
import { placed, type Bound, type BufferRef, type CacheRef, type CacheRole, type Ref } from './refs.js';

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

  /** Queries from an operation's first sequence on, `floats` of each: a second set lies behind those of all. */
  queries(visit: Visit, floats = this.headWords): BufferRef {
    return { ...this.buffer('queries'), offset: floats * this.partOf(visit).first };
  }

  /** Those cached tokens of each of an operation's sequences. */
  spans(visit: Visit, tokens: CachedTokens): BufferRef {
    return this.buffer(spansFrom(this.partOf(visit).first, tokens));
  }

  /** Cached rows of a place that attention reads. */
  cached(visit: Visit, role: CacheRole, tokens: CachedTokens): CacheRef {
    const { block, loop } = placed(visit);
    return this.cacheOf(visit, role, readsFirstRows(this.c, block) && tokens === 'all' ? 0 : loop);
  }

  /**
   * What attention over cached rows binds beside queries. Split partials of a part have been merged before the next one
   * writes its own. Scores are kept for H2O only: without, the binding takes a buffer that is not touched.
   */
  attends(visit: Visit, tokens: CachedTokens, keys: CacheRole, values: CacheRole): Record<string, Ref> {
    return {
      keys: this.cached(visit, keys, tokens),
      values: this.cached(visit, values, tokens),
      partials: this.partials,
      spans: this.spans(visit, tokens),
      scores: weighsTokens(this.c.eviction) ? this.scores(visit) : this.buffer('unused output'),
    };
  }

  get partials(): BufferRef {
    return { ...this.buffer('partials'), words: 'planned' };
  }

  /** Where an operation's tokens are. `second`: pinned tokens are scored by a second set of queries. */
  run(visit: Visit, tokens: CachedTokens, second = false): RunOptions {
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
  exactRows(visit: Visit, axis: Axis): ExactRows {
    const { tail } = streamsIn(this.c, placed(visit).block) as Streams;
    const { capacity: slots } = this.caches.recentSlots;
    return {
      options: { sequences: this.partOf(visit).count, slots, full: tail.most + 1 },
      binds: { spans: this.spans(visit, 'packed'), rows: this.cacheOf(visit, axis) },
    };
  }

  /** `set` 1 is that of StreamingLLM's sinks, at the place of the current token inside the cache. */
  rotateQueries(visit: Visit, set: 0 | 1 = 0): Bound {
    const { headDim } = this.c.geometry;
    const target = { offset: set * this.batch * this.headWords, stride: this.headWords };
    return this.rotateTo(visit, 'queries', headDim, target, set);
  }

  /** Beside the absorbed content queries. */
  rotateBranch(visit: Visit, set: 0 | 1 = 0): Bound {
    const head = queryWidth(this.c);
    const stride = this.c.geometry.heads * head;
    const target = { offset: set * this.batch * stride + rankOf(this.c, 'key'), stride, head };
    return this.rotateTo(visit, 'branch', this.c.branch.width, target, set);
  }

  private rotateTo(
    visit: Visit,
    what: 'queries' | 'branch',
    width: number,
    target: RopeOptions['target'] & object,
    set: 0 | 1,
  ): Bound {
    const positions = this.buffer(set === 0 ? 'positions' : 'places');
    const more = { target, targetHeads: this.c.geometry.heads };
    return this.rotate(visit, this.inPacked(what), width, more, { positions });
  }

  /** Floats of all heads of a token. */
  get headWords(): number {
    return this.c.geometry.heads * this.c.geometry.headDim;
  }

  /** Rows that are rebuilt for a part of the sequences. */
  rebuiltRows(axis: Axis, visit: Visit): BufferRef {
    return { ...this.buffer(`rebuilt ${axis}s`), part: this.partOf(visit).index };
  }
}
