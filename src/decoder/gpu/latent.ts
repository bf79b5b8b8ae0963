/** Execution of a step's attention over latents: absorbed queries, rebuilt rows, and values from latents. */
import type { Rows } from '../../../kernels/options.js';
import { pathSpec } from '../../codecs/paths.js';
import { pinsSinks } from '../../eviction/policy.js';
import type { Buffer } from '../../gpu/index.js';
import { evictingRows } from '../../schedule/eviction-ops.js';
import type { Visit } from '../../schedule/expand.js';
import type { CodecAxis } from '../tensors.js';
import { runOf, secondQuery } from './attention.js';
import { attendBlocks, BLOCK_EXECUTORS } from './blocks.js';
import { plan, type Executor, type Executors } from './dense.js';
import { placed, type Dispatch } from './machine.js';
import { rotary, rotate } from './rows.js';
import { rebuiltRows, type DecodeStep } from './step.js';

/**
 * A product of every query head with its KV head's matrix: groups are KV heads for one sequence, query heads that share
 * matrices for several.
 * @param x, y the first float, and from a sequence and a head to the next
 */
function perQueryHead(
  m: DecodeStep,
  visit: Visit,
  x: { offset: number; row: number; head: number },
  y: { offset: number; row: number; head: number },
): Dispatch['plan'] {
  const byHead = m.batch === 1;
  const rows = (at: typeof x): Rows =>
    byHead
      ? { offset: at.offset, row: at.head, group: m.group * at.head }
      : { offset: at.offset, row: at.row, group: at.head };
  return plan(m, visit, { matmul: { x: rows(x), y: rows(y), weightGroup: byHead ? 1 : m.group } });
}

/** Σ p c_v becomes Σ p v, without the mean. */
const valueUp: Executor<DecodeStep> = async (m, visit) => {
  const place = placed(visit);
  const { heads, headDim } = m.c.geometry;
  const rank = m.readRank(place.loop, 'value');
  const planned = perQueryHead(
    m,
    visit,
    { offset: 0, row: heads * rank, head: rank },
    { offset: 0, row: heads * headDim, head: headDim },
  );
  return {
    plan: planned,
    buffers: {
      x: m.buffer('merged'),
      weights: await m.upMap(place, 'value'),
      y: m.buffer(m.tokensOf(visit) === 'all' ? 'attention' : 'older'),
    },
  };
};

/** The part of attention that reads latents joins that of exact rows, with the mean of the values. */
const attendJoin: Executor<DecodeStep> = async (m, visit) => {
  const place = placed(visit);
  return {
    plan: plan(m, visit, { current: { heads: m.c.geometry.heads, group: m.group } }),
    buffers: {
      output: m.buffer('attention'),
      stats: m.buffer('stats'),
      latent: m.buffer('older'),
      latentStats: m.buffer('older stats'),
      valueMeans: await m.valueMeans(place),
    },
  };
};

/** The mean of the values, and the current token's exact key and value. */
const attendCurrent: Executor<DecodeStep> = async (m, visit) => {
  const place = placed(visit);
  const { heads, headDim } = m.c.geometry;
  const { keys, values } = m.packed;
  const absorbed = pathSpec(m.c.path).branch;
  const packed = m.buffer('query key value');
  const current = { heads, group: m.group, keys, values };
  const shared = {
    output: m.buffer('attention'),
    stats: m.buffer('stats'),
    valueMeans: await m.valueMeans(place),
    newKeys: packed,
    newValues: packed,
  };
  if (!absorbed) {
    return {
      plan: plan(m, visit, { current: { ...current, queries: { offset: 0, stride: heads * headDim } } }),
      buffers: { ...shared, queries: m.buffer('queries') },
    };
  }
  const width = m.queryWidth(place);
  const { rows: branchKeys, at } = m.branchKeys(visit);
  const branch = {
    width: m.c.branch.width,
    queries: { offset: m.rankOf('key'), stride: heads * width, head: width },
    keys: at,
    heads: m.branchHeads,
  };
  return {
    plan: plan(m, visit, { current: { ...current, queries: m.packed.queries, branch } }),
    buffers: {
      ...shared,
      queries: packed,
      keyMeans: await m.weights.mean(place.layer, place.loop, 'key'),
      branchQueries: m.buffer('queries'),
      branchKeys,
    },
  };
};

/** W_k,tᵀ q of every query head, before the rotary branch of the same query; `set` 1 is that of the sinks. */
const queryAbsorb =
  (set: 0 | 1): Executor<DecodeStep> =>
  async (m, visit) => {
    const place = placed(visit);
    const { heads, headDim } = m.c.geometry;
    const rotated = pathSpec(m.c.path).rotated === true;
    const width = rotated ? m.readRank(place.loop, 'key') : m.queryWidth(place);
    const { queries } = m.packed;
    return {
      plan: perQueryHead(
        m,
        visit,
        { offset: queries.offset, row: queries.stride, head: headDim },
        { offset: set * m.batch * heads * width, row: heads * width, head: width },
      ),
      buffers: {
        x: m.buffer('query key value'),
        weights: await m.upMap(place, 'key'),
        y: m.buffer(rotated ? 'latent queries' : 'queries'),
      },
    };
  };

/** The rotary branch's queries go beside the absorbed content queries; `set` 1 is that of the sinks. */
const ropeBranch =
  (set: 0 | 1): Executor<DecodeStep> =>
  (m, visit) => {
    const { heads } = m.c.geometry;
    const width = m.queryWidth(placed(visit));
    const data = { rows: m.buffer('query key value'), at: m.packed.branch };
    const target = { offset: set * m.batch * heads * width + m.rankOf('key'), stride: heads * width, head: width };
    return rotate(m, visit, data, m.c.branch.width, { target, targetHeads: heads }, m.positionsOf(set));
  };

/** Attention straight on latents, with absorbed queries. */
const attendAbsorbed: Executor<DecodeStep> = (m, visit) => {
  const place = placed(visit);
  const { heads, headDim } = m.c.geometry;
  const scale = (headDim + m.c.branch.width) ** -0.5;
  const planned = plan(m, visit, { scale, run: runOf(m, visit, secondQuery(m, place)) });
  const buffers = {
    queries: m.queries(m.partOf(visit), heads * m.queryWidth(place)),
    keys: m.cached(visit, 'key-latent'),
    values: m.cached(visit, 'value-latent'),
    branch: m.cached(visit, 'rotary-key'),
    ...m.attends(visit, planned),
  };
  return { plan: planned, buffers };
};

/** Queries that were brought to a latent's keys, in place. */
const ropeLatentQuery: Executor<DecodeStep> = (m, visit) => {
  const stride = m.c.geometry.heads * m.readRank(placed(visit).loop, 'key');
  return rotate(m, visit, { rows: m.buffer('latent queries'), at: { offset: 0, stride } }, m.c.geometry.headDim);
};

/** Attention on latents that carry their rotation. */
export const attendRotated: Executor<DecodeStep> = (m, visit) => {
  const { loop } = placed(visit);
  const { heads, headDim } = m.c.geometry;
  const part = m.partOf(visit);
  const planned = plan(m, visit, { scale: headDim ** -0.5, run: runOf(m, visit) });
  const first = loop === 0 ? 'first-' : '';
  const words = heads * m.readRank(loop, 'key');
  const buffers = {
    queries: m.own('latent queries', part, words),
    keys: m.cached(visit, `${first}key-latent`),
    values: m.cached(visit, `${first}value-latent`),
    ...m.attends(visit, planned),
  };
  return { plan: planned, buffers };
};

/** Where kernels that rebuild rows from latents find the positions of a part's pinned tokens. */
function pinnedPositions(m: DecodeStep, visit: Visit): { byHead?: boolean; positions: Buffer } {
  const { capacity, pinned } = m.caches.slots;
  const [place, part] = [placed(visit), m.partOf(visit)];
  if (pinned === 0) return { positions: m.buffer('unused') };
  if (pinsSinks(m.c.eviction)) return { positions: m.own('pinned positions', part, capacity) };
  return { byHead: evictingRows(m.c, place.block) > 1, positions: m.evictionBuffer('positions', place, part) };
}

/** A call that rebuilds rows from latents, and what it binds. `only`: the pinned tokens alone. */
async function rebuilding(m: DecodeStep, visit: Visit, axis: CodecAxis, only?: 'pinned'): Promise<Dispatch> {
  const { layer, loop } = placed(visit);
  const { byHead, positions } = pinnedPositions(m, visit);
  const run = { ...runOf(m, visit), ...(only ? { only } : {}) };
  const { pairing } = m.c.geometry.rope;
  return {
    plan: plan(m, visit, { ...rotary(m), pairing, ...(byHead ? { positionsByHead: true } : {}), run }),
    buffers: {
      keys: m.cached(visit, `${axis}-latent`),
      weights: await m.weights.upRows(layer, loop, axis),
      means: await m.weights.mean(layer, loop, axis),
      positions,
      turns: m.turns(m.c.geometry.headDim),
    },
  };
}

/**
 * Attention over latents with keys rebuilt inside. `only`: the pinned tokens, where another kernel attends to the
 * others.
 */
const attendRebuild =
  (only?: 'pinned'): Executor<DecodeStep> =>
  async (m, visit) => {
    const { heads, headDim } = m.c.geometry;
    const { plan: planned, buffers } = await rebuilding(m, visit, 'key', only);
    const queries = m.queries(m.partOf(visit), heads * headDim);
    const values = m.cached(visit, 'value-latent');
    return { plan: planned, buffers: { ...buffers, queries, values, ...m.attends(visit, planned) } };
  };

/** Rebuilds the rows of one layer and loop in memory. */
const rebuild =
  (axis: CodecAxis): Executor<DecodeStep> =>
  async (m, visit) => {
    const { plan: planned, buffers } = await rebuilding(m, visit, axis);
    const part = m.partOf(visit);
    const rows = m.buffer(rebuiltRows(axis, part.index));
    return { plan: planned, buffers: { ...buffers, spans: m.spans(part, visit), rows } };
  };

export const LATENT_EXECUTORS: Executors<DecodeStep> = {
  'rope-branch': ropeBranch(0),
  'query-absorb': queryAbsorb(0),
  'query-absorb-sinks': queryAbsorb(1),
  'rebuild-k': rebuild('key'),
  'rebuild-v': rebuild('value'),
  ...BLOCK_EXECUTORS,
  'rope-latent-query': ropeLatentQuery,
  'value-up': valueUp,
  'attend-current': attendCurrent,
  'attend-join': attendJoin,
  'attend-pinned': attendRebuild('pinned'),
};

/** Executors of one label whose kernel or rows depend on the path. */
export const attendLatent = { absorbed: attendAbsorbed, rebuild: attendRebuild(), blocks: attendBlocks };
export const ropeSinksAbsorbed = ropeBranch(1);
