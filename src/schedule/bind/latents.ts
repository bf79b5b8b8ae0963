/** What a step's attention binds over latents: absorbed, rotated, rebuilt, or by blocks. */
import { pathSpec } from '../../codecs/paths.js';
import { pinsSinks } from '../../eviction/policy.js';
import { blockComponents } from '../../../kernels/block_vectors/terms.js';
import type { OperationOptions } from '../../../kernels/options.js';
import type { Rows } from '../../../kernels/placement.js';
import type { CachePart } from '../cache-map.js';
import { evictingRows } from '../eviction-ops.js';
import type { Visit } from '../expand.js';
import { type Bind } from './dense.js';
import type { Frame } from './frame.js';
import { placed, type BufferRef, type Bound, type RowAxis } from './refs.js';
import { rotate } from './rows.js';
import type { StepFrame } from './step.js';

type StepBind = Bind<StepFrame>;

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
export const valueUp: StepBind = (f, visit) => {
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
export const queryAbsorb =
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
export const attendJoin: StepBind = (f, visit) => ({
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
export const attendCurrent: StepBind = (f, visit) => {
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
      options: { current: { ...current, queries: { offset: 0, stride: f.headWords } } },
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
export const attendAbsorbed: StepBind = (f, visit) => {
  const place = placed(visit);
  const { heads, headDim } = f.c.geometry;
  return {
    options: { scale: (headDim + f.c.branch.width) ** -0.5, run: f.run(visit, f.secondQuery(place)) },
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
export const ropeLatentQuery: StepBind = (f, visit) => {
  const stride = f.c.geometry.heads * f.readRank(placed(visit).loop, 'key');
  return rotate(f, visit, { rows: f.buffer('latent queries'), at: { offset: 0, stride } }, f.c.geometry.headDim);
};

/** Attention on latents that carry their rotation. */
export const attendRotated: StepBind = (f, visit) => {
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
      turns: f.buffer(`rotary table ${f.c.geometry.headDim}`),
    },
  };
}

/** Attention over latents with keys rebuilt inside. `only`: where another kernel attends to the other tokens. */
export const attendRebuild =
  (only?: 'pinned'): StepBind =>
  (f, visit) => {
    const { options, binds } = rebuilding(f, visit, 'key', only);
    const queries = f.queries(f.partOf(visit), f.headWords);
    const values = f.cached(visit, 'value-latent');
    return { options, binds: { ...binds, queries, values, ...f.attends(visit) } };
  };

/** Rebuilds the rows of one layer and loop in memory. */
export const rebuild =
  (axis: RowAxis): StepBind =>
  (f, visit) => {
    const { options, binds } = rebuilding(f, visit, axis);
    const part = f.partOf(visit);
    return { options, binds: { ...binds, spans: f.spans(part, visit), rows: f.rebuiltRows(axis, part.index) } };
  };

const vectorsOf = (f: StepFrame, part: CachePart): BufferRef =>
  f.own('block vectors', part, f.headWords * blockComponents(f.rankOf('key')));

/** a_m and b_m of every query head: the set-up of block-absorbed attention. */
export const blockVectors: StepBind = (f, visit) => {
  const { layer, loop } = placed(visit);
  const part = f.partOf(visit);
  return {
    options: { pairing: f.c.geometry.rope.pairing, blockVectors: { group: f.group } },
    binds: {
      queries: f.queries(part, f.headWords),
      weights: { weights: 'up-rows', layer, loop, axis: 'key' },
      means: { weights: 'mean', layer, loop, axis: 'key' },
      vectors: vectorsOf(f, part),
    },
  };
};

/** The basis of a part's sequences: each part has been attended to before the next one writes its own. */
const basisOf = (f: Frame): BufferRef => ({ ...f.buffer('block basis'), words: 'planned' });

/** The basis of every block of the ring. */
export const blockBasis: StepBind = (f, visit) => {
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
export const attendBlocks: StepBind = (f, visit) => ({
  options: { ...f.rotary, run: f.run(visit) },
  binds: {
    basis: basisOf(f),
    keys: f.cached(visit, 'key-latent'),
    values: f.cached(visit, 'value-latent'),
    phi: { table: 'phi of blocks' },
    ...f.attends(visit),
  },
});
