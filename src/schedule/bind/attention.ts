/** What a step's attention binds: over rows of full width, over latents, and H2O's exchange of tokens. */
import { pathSpec } from '../../codecs/paths.js';
import { pinsSinks, reindexes } from '../../eviction/policy.js';
import { blockComponents } from '../../../kernels/block_vectors/terms.js';
import type { EvictedCache } from '../../../kernels/cache-options.js';
import type { OperationOptions } from '../../../kernels/options.js';
import type { Placement, Rows } from '../../../kernels/placement.js';
import type { Streams } from '../../codecs/codec.js';
import { listWords, readsFirstRows } from '../buffers.js';
import { streamsIn } from '../streams.js';
import type { CachePart } from '../cache-map.js';
import { anchoredIn } from '../configuration.js';
import { branchWidth, evictingRows, readsLatents } from '../eviction-ops.js';
import type { Place, Visit } from '../expand.js';
import { meanRow } from '../rows.js';
import { loopGateOfInput, type Bind, type Binds } from './dense.js';
import type { Frame } from './frame.js';
import {
  loopOf,
  placed,
  type BufferRef,
  type Bound,
  type CacheRole,
  type Placed,
  type Ref,
  type RowAxis,
} from './refs.js';
import { copy, rotate } from './rows.js';
import type { StepFrame } from './step.js';

type StepBind = Bind<StepFrame>;

/** StreamingLLM scores sinks by a second query where keys are cached rotated. */
const secondQuery = (f: Frame, { block }: Place): boolean =>
  reindexes(f.c.eviction) && (!readsLatents(f.c, block) || branchWidth(f.c, block) > 0);

/** True where attention scores latents, and a rotary branch beside them. */
const scoresLatents = (f: Frame, { place }: Visit): boolean =>
  place !== undefined && readsLatents(f.c, place.block) && pathSpec(f.c.path).branch === true;

/** Rows that are rebuilt for a part of the sequences. */
const rebuiltRows = (f: Frame, axis: RowAxis, part: number): BufferRef => ({ ...f.buffer(`rebuilt ${axis}s`), part });

const headWords = (f: Frame): number => f.c.geometry.heads * f.c.geometry.headDim;

/** Attention over rows of full width: the cache's, or rebuilt ones. */
const attendFullWidth: StepBind = (f, visit) => {
  const place = placed(visit);
  const part = f.partOf(visit);
  const rebuilt = readsLatents(f.c, place.block) && f.tokensOf(visit) === 'all';
  const rows = (axis: RowAxis): Ref => (rebuilt ? rebuiltRows(f, axis, part.index) : f.cached(visit, axis));
  return {
    options: { run: f.run(visit, secondQuery(f, place)) },
    binds: { queries: f.queries(part, headWords(f)), keys: rows('key'), values: rows('value'), ...f.attends(visit) },
  };
};

/** Attention over rows that are rebuilt from those of the anchor's loop. */
const attendAnchored: StepBind = (f, visit) => {
  const { block, loop } = placed(visit);
  return {
    options: { residual: { loop: loop % anchoredIn(f.c, block) }, run: f.run(visit) },
    binds: {
      queries: f.queries(f.partOf(visit), headWords(f)),
      keys: f.cached(visit, 'key'),
      values: f.cached(visit, 'value'),
      ...f.attends(visit),
    },
  };
};

/** Lists of chosen keys: words of each, and the first of a part's. */
function listsOf(f: StepFrame, visit: Visit): { listWords: number; firstList: number } {
  const words = listWords(streamsIn(f.c, placed(visit).block) as Streams, f.caches.slots.capacity);
  return { listWords: words, firstList: f.partOf(visit).first * f.c.geometry.heads };
}

const scoresOf = (f: StepFrame, visit: Visit): BufferRef =>
  f.own('scores', f.partOf(visit), f.c.geometry.heads * f.caches.slots.capacity);

/** Attention over packed rows and exact ones: of all tokens, or of those that each head has chosen. */
const attendStreams: StepBind = (f, visit) => {
  const { layer } = placed(visit);
  const { variant } = visit.op;
  const { listWords, firstList } = listsOf(f, visit);
  const { spans: _all, ...apart } = f.run(visit);
  const streams = { loops: f.c.geometry.loops, tailSlots: f.caches.recentSlots.capacity };
  const chosen = variant === 'chosen';
  return {
    options: chosen ? { run: apart, streams: { ...streams, listWords, firstList } } : { run: f.run(visit), streams },
    binds: {
      queries: f.queries(f.partOf(visit), headWords(f)),
      keys: f.cacheOf(visit, 'key-stream'),
      values: f.cacheOf(visit, 'value-stream'),
      tailKeys: f.cacheOf(visit, 'key'),
      tailValues: f.cacheOf(visit, 'value'),
      ...f.attends(visit),
      ...(variant === 'all+scores' ? { scores: scoresOf(f, visit) } : {}),
      ...(chosen ? { chosen: f.buffer('chosen keys', layer) } : {}),
    },
  };
};

/** The keys that later loops read. */
const chooseKeys: StepBind = (f, visit) => {
  const part = f.partOf(visit);
  const { offset, stride } = f.packed.keys;
  const keys = { offset: offset + part.first * stride, stride };
  const { heads } = f.c.geometry;
  const { capacity } = f.caches.slots;
  return {
    options: { chooseKeys: { heads, group: f.group, capacity, keys, ...listsOf(f, visit) } },
    binds: {
      scores: scoresOf(f, visit),
      queries: f.queries(part, headWords(f)),
      newKeys: f.buffer('query key value'),
      spans: f.spans(part, visit),
      chosen: f.buffer('chosen keys', placed(visit).layer),
    },
  };
};

/** Attention over chosen keys, beside that of the last dense loop. */
const joinChosen: StepBind = (f, visit) => {
  const { layer } = placed(visit);
  const { heads } = f.c.geometry;
  const { keys, values } = f.packed;
  const queries = { offset: 0, stride: headWords(f) };
  return {
    options: { current: { heads, group: f.group, queries, keys, values, listWords: listsOf(f, visit).listWords } },
    binds: {
      output: f.buffer('attention'),
      stats: f.buffer('stats'),
      part: f.buffer('chosen attention'),
      partStats: f.buffer('chosen stats'),
      queries: f.buffer('queries'),
      newRows: f.buffer('query key value'),
      chosen: f.buffer('chosen keys', layer),
      base: f.buffer('second outputs', layer),
    },
  };
};

/** The current token's keys and values: of the first loop where attention reads its rows. */
function currentRows(f: StepFrame, visit: Visit): { rows: BufferRef; keys: Placement; values: Placement } {
  const { block, layer, loop } = placed(visit);
  if (loop === 0 || !readsFirstRows(f.c, block) || f.tokensOf(visit) !== 'all')
    return { rows: f.buffer('query key value'), keys: f.packed.keys, values: f.packed.values };
  const stride = meanRow(f.c);
  return {
    rows: f.buffer('first rows', layer),
    keys: { offset: 0, stride },
    values: { offset: stride / 2, stride },
  };
}

/** The merge of an attention's splits, with the current token's key and value where they are of full width. */
function mergeInto(f: StepFrame, visit: Visit, output: string, stats: string): Bound {
  const { heads } = f.c.geometry;
  const { first } = f.partOf(visit);
  const own = ({ offset, stride }: Placement): Placement => ({ offset: offset + first * stride, stride });
  const { rows, keys, values } = currentRows(f, visit);
  const queries = own({ offset: 0, stride: headWords(f) });
  const vectors = visit.op.variant === 'current' ? { queries, keys: own(keys), values: own(values) } : {};
  return {
    options: { current: { heads, group: f.group, ...vectors, firstRow: first * heads } },
    binds: {
      partials: f.partials,
      output: f.buffer(output),
      stats: f.buffer(stats),
      queries: f.buffer('queries'),
      newKeys: rows,
      newValues: rows,
    },
  };
}

const merge: StepBind = (f, visit) => {
  const current = visit.op.variant === 'current';
  const stats = current || f.tokensOf(visit) === 'all' ? 'stats' : 'older stats';
  return mergeInto(f, visit, current ? 'attention' : 'merged', stats);
};

/** A gate of each head, of its rotated query or of the layer's input. */
const loopGate: StepBind = (f, visit) => {
  if (f.c.geometry.loopGateOfInput) return loopGateOfInput(f, visit);
  const { heads, headDim } = f.c.geometry;
  return {
    options: { matmul: { x: { row: heads * headDim, group: headDim }, y: { row: heads, group: 1 } } },
    binds: {
      x: f.buffer('queries'),
      weights: { weights: 'loop-gate', stored: placed(visit).stored },
      y: f.buffer('loop gates'),
    },
  };
};

/** Attention over the first loop's rows and that over the window, mixed by the gate. */
const loopMix: StepBind = (f, visit) => ({
  options: { current: { heads: f.c.geometry.heads, group: f.group } },
  binds: {
    gates: f.buffer('loop gates'),
    bias: { weights: 'loop-gate-bias', stored: placed(visit).stored },
    other: f.buffer('window attention'),
    target: f.buffer('attention'),
  },
});

/**
 * Rotates queries to where attention reads them, and new keys in place. `set` 1 is that of the sinks, at the place of
 * the current token inside the cache.
 */
function ropeQueries(f: StepFrame, visit: Visit, set: 0 | 1): Bound {
  const { heads, headDim } = f.c.geometry;
  const target = { offset: set * f.batch * heads * headDim, stride: heads * headDim };
  return rotate(f, visit, f.inPacked('queries'), headDim, { target, targetHeads: heads }, f.positionsOf(set));
}

/** The rotary branch's queries go beside the absorbed content queries; `set` 1 is that of the sinks. */
function ropeBranch(f: StepFrame, visit: Visit, set: 0 | 1): Bound {
  const { heads } = f.c.geometry;
  const width = f.queryWidth(placed(visit));
  const target = { offset: set * f.batch * heads * width + f.rankOf('key'), stride: heads * width, head: width };
  return rotate(f, visit, f.inPacked('branch'), f.c.branch.width, { target, targetHeads: heads }, f.positionsOf(set));
}

/** The first float, and from a sequence and a head to the next. */
interface HeadRows {
  readonly offset: number;
  readonly row: number;
  readonly head: number;
}

/**
 * A product of every query head with its KV head's matrix: groups are KV heads for one sequence, query heads that share
 * matrices for several.
 */
function perQueryHead(f: StepFrame, x: HeadRows, y: HeadRows): OperationOptions {
  const byHead = f.batch === 1;
  const rows = ({ offset, row, head }: HeadRows): Rows =>
    byHead ? { offset, row: head, group: f.group * head } : { offset, row, group: head };
  return { matmul: { x: rows(x), y: rows(y), weightGroup: byHead ? 1 : f.group } };
}

/** Σ p c_v becomes Σ p v, without the mean. */
const valueUp: StepBind = (f, visit) => {
  const place = placed(visit);
  const { heads, headDim } = f.c.geometry;
  const rows = (head: number): HeadRows => ({ offset: 0, row: heads * head, head });
  return {
    options: perQueryHead(f, rows(f.readRank(place.loop, 'value')), rows(headDim)),
    binds: {
      x: f.buffer('merged'),
      weights: f.upMap(place, 'value'),
      y: f.buffer(f.tokensOf(visit) === 'all' ? 'attention' : 'older'),
    },
  };
};

/** W_k,tᵀ q of every query head, before the rotary branch of the same query; `set` 1 is that of the sinks. */
const queryAbsorb =
  (set: 0 | 1): StepBind =>
  (f, visit) => {
    const place = placed(visit);
    const { heads, headDim } = f.c.geometry;
    const rotated = pathSpec(f.c.path).rotated === true;
    const width = rotated ? f.readRank(place.loop, 'key') : f.queryWidth(place);
    const { rows, at } = f.inPacked('queries');
    return {
      options: perQueryHead(
        f,
        { offset: at.offset, row: at.stride, head: headDim },
        { offset: set * f.batch * heads * width, row: heads * width, head: width },
      ),
      binds: { x: rows, weights: f.upMap(place, 'key'), y: f.buffer(rotated ? 'latent queries' : 'queries') },
    };
  };

/** The part of attention that reads latents joins that of exact rows, with the mean of the values. */
const attendJoin: StepBind = (f, visit) => ({
  options: { current: { heads: f.c.geometry.heads, group: f.group } },
  binds: {
    output: f.buffer('attention'),
    stats: f.buffer('stats'),
    latent: f.buffer('older'),
    latentStats: f.buffer('older stats'),
    valueMeans: f.valueMeans(placed(visit)),
  },
});

/** The mean of the values, and the current token's exact key and value. */
const attendCurrent: StepBind = (f, visit) => {
  const place = placed(visit);
  const { layer, loop } = place;
  const { heads } = f.c.geometry;
  const { keys, values, queries } = f.packed;
  const packed = f.buffer('query key value');
  const current = { heads, group: f.group, keys, values };
  const shared = {
    output: f.buffer('attention'),
    stats: f.buffer('stats'),
    valueMeans: f.valueMeans(place),
    newKeys: packed,
    newValues: packed,
  };
  if (!pathSpec(f.c.path).branch)
    return {
      options: { current: { ...current, queries: { offset: 0, stride: headWords(f) } } },
      binds: { ...shared, queries: f.buffer('queries') },
    };
  const width = f.queryWidth(place);
  const { rows: branchKeys, at } = f.branchKeys(visit);
  const branch = {
    width: f.c.branch.width,
    queries: { offset: f.rankOf('key'), stride: heads * width, head: width },
    keys: at,
    heads: f.branchHeads,
  };
  return {
    options: { current: { ...current, queries, branch } },
    binds: {
      ...shared,
      queries: packed,
      keyMeans: { weights: 'mean', layer, loop, axis: 'key' },
      branchQueries: f.buffer('queries'),
      branchKeys,
    },
  };
};

/** Attention straight on latents, with absorbed queries. */
const attendAbsorbed: StepBind = (f, visit) => {
  const place = placed(visit);
  const { heads, headDim } = f.c.geometry;
  return {
    options: { scale: (headDim + f.c.branch.width) ** -0.5, run: f.run(visit, secondQuery(f, place)) },
    binds: {
      queries: f.queries(f.partOf(visit), heads * f.queryWidth(place)),
      keys: f.cached(visit, 'key-latent'),
      values: f.cached(visit, 'value-latent'),
      branch: f.cached(visit, 'rotary-key'),
      ...f.attends(visit),
    },
  };
};

/** Queries that were brought to a latent's keys, in place. */
const ropeLatentQuery: StepBind = (f, visit) => {
  const stride = f.c.geometry.heads * f.readRank(placed(visit).loop, 'key');
  return rotate(f, visit, { rows: f.buffer('latent queries'), at: { offset: 0, stride } }, f.c.geometry.headDim);
};

/** Attention on latents that carry their rotation. */
const attendRotated: StepBind = (f, visit) => {
  const { loop } = placed(visit);
  const { heads, headDim } = f.c.geometry;
  const first = loop === 0 ? 'first-' : '';
  return {
    options: { scale: headDim ** -0.5, run: f.run(visit) },
    binds: {
      queries: f.own('latent queries', f.partOf(visit), heads * f.readRank(loop, 'key')),
      keys: f.cached(visit, `${first}key-latent`),
      values: f.cached(visit, `${first}value-latent`),
      ...f.attends(visit),
    },
  };
};

/** Where kernels that rebuild rows from latents find the positions of a part's pinned tokens. */
function pinnedPositions(f: StepFrame, visit: Visit): { byHead?: boolean; positions: BufferRef } {
  const { capacity, pinned } = f.caches.slots;
  const [place, part] = [placed(visit), f.partOf(visit)];
  if (pinned === 0) return { positions: f.buffer('unused') };
  if (pinsSinks(f.c.eviction)) return { positions: f.own('pinned positions', part, capacity) };
  return { byHead: evictingRows(f.c, place.block) > 1, positions: f.evicting('positions', place, part) };
}

/** A call that rebuilds rows from latents. `only`: the pinned tokens alone. */
function rebuilding(f: StepFrame, visit: Visit, axis: RowAxis, only?: 'pinned'): Required<Bound> {
  const { layer, loop } = placed(visit);
  const { byHead, positions } = pinnedPositions(f, visit);
  const { pairing } = f.c.geometry.rope;
  const run = { ...f.run(visit), ...(only ? { only } : {}) };
  return {
    options: { ...f.rotary, pairing, ...(byHead ? { positionsByHead: true } : {}), run },
    binds: {
      keys: f.cached(visit, `${axis}-latent`),
      weights: { weights: 'up-rows', layer, loop, axis },
      means: { weights: 'mean', layer, loop, axis },
      positions,
      turns: f.buffer(`turns ${f.c.geometry.headDim}`),
    },
  };
}

/** Attention over latents with keys rebuilt inside. `only`: where another kernel attends to the other tokens. */
const attendRebuild =
  (only?: 'pinned'): StepBind =>
  (f, visit) => {
    const { options, binds } = rebuilding(f, visit, 'key', only);
    const queries = f.queries(f.partOf(visit), headWords(f));
    const values = f.cached(visit, 'value-latent');
    return { options, binds: { ...binds, queries, values, ...f.attends(visit) } };
  };

/** Rebuilds the rows of one layer and loop in memory. */
const rebuild =
  (axis: RowAxis): StepBind =>
  (f, visit) => {
    const { options, binds } = rebuilding(f, visit, axis);
    const part = f.partOf(visit);
    return { options, binds: { ...binds, spans: f.spans(part, visit), rows: rebuiltRows(f, axis, part.index) } };
  };

const vectorsOf = (f: Frame, part: CachePart): BufferRef =>
  f.own('block vectors', part, headWords(f) * blockComponents(f.rankOf('key')));

/** a_m and b_m of every query head: the set-up of block-absorbed attention. */
const blockVectors: StepBind = (f, visit) => {
  const { layer, loop } = placed(visit);
  const part = f.partOf(visit);
  return {
    options: { pairing: f.c.geometry.rope.pairing, blockVectors: { group: f.group } },
    binds: {
      queries: f.queries(part, headWords(f)),
      weights: { weights: 'up-rows', layer, loop, axis: 'key' },
      means: { weights: 'mean', layer, loop, axis: 'key' },
      vectors: vectorsOf(f, part),
    },
  };
};

/** The basis of a part's sequences: each part has been attended to before the next one writes its own. */
const basisOf = (f: Frame): BufferRef => ({ ...f.buffer('block basis'), words: 'planned' });

/** The basis of every block of the ring. */
const blockBasis: StepBind = (f, visit) => {
  const part = f.partOf(visit);
  return {
    options: { ...f.rotary, run: f.run(visit) },
    binds: {
      vectors: vectorsOf(f, part),
      angles: { table: 'angles of blocks' },
      psi: { table: 'psi of blocks' },
      spans: f.spans(part, visit),
      basis: basisOf(f),
    },
  };
};

/** Attention over the ring's latents, whose positions follow each other, without rebuilding keys. */
const attendBlocks: StepBind = (f, visit) => ({
  options: { ...f.rotary, run: f.run(visit) },
  binds: {
    basis: basisOf(f),
    keys: f.cached(visit, 'key-latent'),
    values: f.cached(visit, 'value-latent'),
    phi: { table: 'phi of blocks' },
    ...f.attends(visit),
  },
});

const attend: StepBind = (f, visit) => {
  const { op, place } = visit;
  if (op.kernel === 'attend_residual') return attendAnchored(f, visit);
  if (op.kernel === 'attend_streams') return attendStreams(f, visit);
  if (op.kernel === 'attend_rebuild') return attendRebuild()(f, visit);
  if (op.kernel === 'attend_block_absorbed') return attendBlocks(f, visit);
  if (pathSpec(f.c.path).rotated && place && readsLatents(f.c, place.block)) return attendRotated(f, visit);
  return scoresLatents(f, visit) ? attendAbsorbed(f, visit) : attendFullWidth(f, visit);
};

const mass: StepBind = (f, visit) => {
  const part = f.partOf(visit);
  return {
    options: { mass: { capacity: f.caches.slots.capacity } },
    binds: {
      scores: f.scores(part),
      stats: f.own('stats', part, 2 * f.c.geometry.heads),
      mass: f.evicting('mass', placed(visit), part),
    },
  };
};

/** The rows that are evicted together. */
export function evictedRows(f: Frame, place: Place): (EvictedCache & { name: CacheRole })[] {
  const { block } = place;
  const branch = branchWidth(f.c, block) > 0 ? (['rotary-key'] as const) : [];
  const roles = readsLatents(f.c, block)
    ? (['key-latent', 'value-latent', ...branch] as const)
    : (['key', 'value'] as const);
  return roles.map((name) => {
    const { width, heads } = f.caches.tensor(name, place);
    return { name, width, rows: heads / evictingRows(f.c, block) };
  });
}

const evict: StepBind = (f, visit) => {
  const place = placed(visit);
  const { capacity, pinned, ring } = f.caches.slots;
  const part = f.partOf(visit);
  const loop = loopOf(visit);
  const caches = evictedRows(f, place);
  return {
    options: { evict: { heads: evictingRows(f.c, place.block), pinned, ring, capacity, caches } },
    binds: {
      spans: f.spans(part, visit),
      mass: f.evicting('mass', place, part, loop),
      positions: f.evicting('positions', place, part, loop),
      moves: f.buffer('moves'),
      ...Object.fromEntries(caches.map(({ name }) => [name, f.cacheOf(visit, name, loop)])),
    },
  };
};

/** The first loop's keys and values of the current token, which later loops attend to as well. */
const firstRows: StepBind = (f, visit) => {
  const rows: Placed = { rows: f.buffer('first rows', placed(visit).layer), at: { offset: 0, stride: meanRow(f.c) } };
  return copy(f.projected('key'), rows);
};

export const ATTENTION: Binds<StepFrame> = {
  attend,
  merge,
  rope: (f, visit) => ropeQueries(f, visit, 0),
  'rope-sinks': (f, visit) => (scoresLatents(f, visit) ? ropeBranch : ropeQueries)(f, visit, 1),
  'attend-chosen': attendStreams,
  'merge-chosen': (f, visit) => mergeInto(f, visit, 'chosen attention', 'chosen stats'),
  'choose-keys': chooseKeys,
  'join-chosen': joinChosen,
  'attend-recent': attendFullWidth,
  'first-rows': firstRows,
  'attend-window': attendFullWidth,
  'merge-window': (f, visit) => mergeInto(f, visit, 'window attention', 'window stats'),
  'loop-gate': loopGate,
  'loop-mix': loopMix,
  'rope-branch': (f, visit) => ropeBranch(f, visit, 0),
  'query-absorb': queryAbsorb(0),
  'query-absorb-sinks': queryAbsorb(1),
  'rebuild-k': rebuild('key'),
  'rebuild-v': rebuild('value'),
  'block-vectors': blockVectors,
  'block-basis': blockBasis,
  'rope-latent-query': ropeLatentQuery,
  'value-up': valueUp,
  'attend-current': attendCurrent,
  'attend-join': attendJoin,
  'attend-pinned': attendRebuild('pinned'),
  mass,
  evict,
};
