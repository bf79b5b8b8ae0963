/** Execution of attention over rows of full width, rotation, and writing to the cache. */
import type { AppendOptions } from '../../kernels/append/launch.js';
import type { RunOptions } from '../../kernels/shared/fold.launch.js';
import type { Buffer } from '../../gpu/index.js';
import { reindexes, weighsTokens } from '../../eviction/policy.js';
import { branchWidth, readsLatents } from '../../schedule/eviction-ops.js';
import { placed, plan, type Executor } from './dense.js';
import type { CachePart, CacheRole, Slots } from './caches.js';
import { RECENT, rebuiltRows, type Dispatch, type Machine, type Vectors } from './machine.js';
import type { Place, Visit } from '../../schedule/expand.js';

/** Rotary options that all calls share. */
export const rotary = (m: Machine) => ({ ropeBase: m.c.geometry.rope.theta, positions: m.positions });

/** Where an operation's tokens are. `second`: pinned tokens are scored by a second set of queries. */
export function runOf(m: Machine, visit: Visit, second: boolean, sequences: number): RunOptions {
  const { op } = visit;
  const { capacity, pinned } = m.tokensOf(visit) === 'recent' ? m.caches.recentSlots : m.caches.slots;
  return {
    capacity,
    pinned,
    ...(op.division ? { division: op.division } : {}),
    spans: Array.from({ length: sequences }, () => m.longestOf(visit)),
    ...(second && pinned > 0 ? { pinnedQuery: true, queriesApart: m.batch * m.c.geometry.heads } : {}),
  };
}

/** Scores of a part's sequences, kept for H2O only; without, the binding takes a buffer that is not touched. */
export const scoresOf = (m: Machine, part: CachePart): Buffer =>
  weighsTokens(m.c.eviction)
    ? m.own('scores', part, m.c.geometry.heads * m.caches.slots.capacity)
    : m.buffer('unused output');

/** StreamingLLM scores sinks by a second query where keys are cached rotated. */
export const secondQuery = (m: Machine, place: Place): boolean =>
  reindexes(m.c.eviction) && (!readsLatents(m.c, place.block) || branchWidth(m.c, place.block) > 0);

/** Attention over rows of full width: the cache's, or rebuilt ones. */
export const attendFullWidth: Executor = (m, visit) => {
  const place = placed(visit);
  const { heads, headDim } = m.c.geometry;
  const part = m.partOf(visit);
  const rebuilt = readsLatents(m.c, place.block) && m.tokensOf(visit) === 'all';
  const rows = (role: CacheRole, axis: 'keys' | 'values'): Buffer =>
    rebuilt ? m.buffer(rebuiltRows(axis, part.index)) : m.caches.buffer(role, place, place.loop, part.index);
  const planned = plan(m, visit, { run: runOf(m, visit, secondQuery(m, place), part.count) });
  const buffers = {
    queries: m.queries(part, heads * headDim),
    keys: rows('key', 'keys'),
    values: rows('value', 'values'),
    partials: m.partials(planned),
    spans: m.spans(part, visit),
    scores: scoresOf(m, part),
  };
  return Promise.resolve({ plan: planned, buffers });
};

/** The merge of an attention's splits, with the current token's key and value where they are of full width. */
const merge: Executor = (m, visit) => {
  const { op } = visit;
  const { heads, headDim } = m.c.geometry;
  const current = op.variant === 'current';
  const { first } = m.partOf(visit);
  const own = ({ offset, stride }: Vectors): Vectors => ({ offset: offset + first * stride, stride });
  const { keys, values } = m.packed;
  const queries: Vectors = { offset: 0, stride: heads * headDim };
  const vectors = current ? { queries: own(queries), keys: own(keys), values: own(values) } : {};
  const planned = plan(m, visit, { current: { heads, group: m.group, ...vectors, firstRow: first * heads } });
  const packed = m.buffer('query key value');
  return Promise.resolve({
    plan: planned,
    buffers: {
      partials: m.partials(planned),
      output: m.buffer(current ? 'attention' : 'merged'),
      stats: m.buffer(current || m.tokensOf(visit) === 'all' ? 'stats' : 'older stats'),
      queries: m.buffer('queries'),
      newKeys: packed,
      newValues: packed,
    },
  });
};

/** Rotates queries (to where attention reads them) and new keys (in place). */
const rope: Executor = (m, visit) => {
  const { heads, headDim } = m.c.geometry;
  const target = { offset: 0, stride: heads * headDim };
  const planned = plan(m, visit, { ...rotary(m), rope: { data: m.packed.queries, target, targetHeads: heads } });
  return Promise.resolve({
    plan: planned,
    buffers: {
      positions: m.buffer('positions'),
      turns: m.turns(headDim),
      data: m.buffer('query key value'),
      target: m.buffer('queries'),
    },
  });
};

/** The new keys alone, where layers that share them have queries of their own. */
const ropeKeys: Executor = (m, visit) => {
  const planned = plan(m, visit, { ...rotary(m), rope: { data: m.packed.keys } });
  return Promise.resolve({
    plan: planned,
    buffers: {
      positions: m.buffer('positions'),
      turns: m.turns(m.c.geometry.headDim),
      data: m.buffer('query key value'),
      target: m.buffer('unused output'),
    },
  });
};

/** The second set of queries: at the place of the current token inside the cache. */
export const ropeSinks: Executor = (m, visit) => {
  const { heads, headDim } = m.c.geometry;
  const planned = plan(m, visit, {
    ...rotary(m),
    rope: {
      data: m.packed.queries,
      target: { offset: m.batch * heads * headDim, stride: heads * headDim },
      targetHeads: heads,
    },
  });
  return Promise.resolve({
    plan: planned,
    buffers: {
      positions: m.buffer('places'),
      turns: m.turns(headDim),
      data: m.buffer('query key value'),
      target: m.buffer('queries'),
    },
  });
};

/** Writes a token's rows of a part's sequences from a buffer of floats. */
export function appendTo(
  m: Machine,
  visit: Visit,
  role: CacheRole,
  from: { rows: Buffer; at: Vectors; bias?: Buffer; loop?: number; slots?: Slots },
): Dispatch {
  const place = placed(visit);
  const { capacity, pinned, ring, sinks } = from.slots ?? m.caches.slots;
  const { index, first } = m.partOf(visit);
  const options: AppendOptions = {
    capacity,
    pinned,
    ring,
    sinks,
    firstStart: first,
    rowOffset: from.at.offset + first * from.at.stride,
    rowStride: from.at.stride,
    ...(from.bias ? { bias: true } : {}),
  };
  return {
    plan: plan(m, visit, { append: options }),
    buffers: {
      tokens: m.buffer('positions'),
      rows: from.rows,
      ...(from.bias ? { bias: from.bias } : {}),
      cache: m.caches.buffer(role, place, from.loop, index),
    },
  };
}

export const appendFullWidth =
  (role: 'key' | 'value'): Executor =>
  (m, visit) =>
    Promise.resolve(
      appendTo(m, visit, role, {
        rows: m.buffer('query key value'),
        at: role === 'key' ? m.packed.keys : m.packed.values,
      }),
    );

/** The new token's exact rows, into the window beside latents. */
const appendRecent =
  (role: 'key' | 'value'): Executor =>
  (m, visit) =>
    Promise.resolve(
      appendTo(m, visit, role, {
        rows: m.buffer('query key value'),
        at: role === 'key' ? m.packed.keys : m.packed.values,
        slots: m.caches.recentSlots,
      }),
    );

export const ATTENTION_EXECUTORS: Readonly<Record<string, Executor>> = {
  merge,
  rope,
  'rope-k': ropeKeys,
  [RECENT]: attendFullWidth,
  'append-recent-k': appendRecent('key'),
  'append-recent-v': appendRecent('value'),
};
