/** Execution of the learned codecs' operations: encoding, absorbed queries, rebuilt rows, and values from latents. */
import { pathSpec } from '../../codecs/paths.js';
import { codecSpec, isLatent } from '../../codecs/registry.js';
import { pinsSinks } from '../../eviction/policy.js';
import type { Rows } from '../../kernels/matmul/launch.js';
import { evictingRows } from '../../schedule/eviction-ops.js';
import type { CachePart, CacheRole } from './caches.js';
import type { Buffer } from '../../gpu/index.js';
import { branchTensor, codecTensor, type CodecAxis } from '../tensors.js';
import { attendBlocks, BLOCK_EXECUTORS } from './blocks.js';
import { appendTo, rotary, runOf, scoresOf, secondQuery } from './attention.js';
import { placed, plan, project, type Executor } from './dense.js';
import { latentsOf, restoredLoops, spansLoops } from '../../schedule/configuration.js';
import { rebuiltRows, type Dispatch, type Machine, type Vectors } from './machine.js';
import type { Place, Visit } from '../../schedule/expand.js';

/** Latent rows of a token in one layer and loop. */
export const latentRows = (m: Machine): number => latentsOf(m.c);
export const rankOf = (m: Machine, axis: CodecAxis): number =>
  (axis === 'key' ? m.c.codec.rankK : m.c.codec.rankV) as number;
/** The accumulator of a layer, or the one that all layers use in turn. */
const ownLayer = (m: Machine, place: Place): number => (spansLoops(m.c) ? place.layer : 0);
const latentOf = (m: Machine, place: Place, axis: CodecAxis) => m.buffer(`latent ${axis} ${ownLayer(m, place)}`);
const branchKeyOf = (m: Machine, place: Place) => m.buffer(`branch key ${ownLayer(m, place)}`);
export const branchHeads = (m: Machine): number => (m.c.branch.perHead ? m.c.geometry.kvHeads : 1);

/** c (+)= x_t W_down,t, of the keys before their rotation; the mean is taken off when the row is stored. */
const encode =
  (axis: CodecAxis): Executor =>
  async (m, visit) => {
    const place = placed(visit);
    const from = axis === 'key' ? m.packed.keys : m.packed.values;
    const rank = rankOf(m, axis);
    const x: Rows = { offset: from.offset, row: from.stride, group: m.c.geometry.headDim };
    const y: Rows = { row: latentRows(m) * rank, group: rank };
    const accumulate = spansLoops(m.c) && place.loop > 0;
    const weights = await m.weights.down(place.layer, place.loop, axis);
    return {
      plan: plan(m, visit, { matmul: { x, y, accumulate } }),
      buffers: { x: m.buffer('query key value'), weights, y: latentOf(m, place, axis) },
    };
  };

/**
 * A product of every query head with its KV head's matrix: groups are KV heads for one sequence, query heads that share
 * matrices for several.
 * @param x, y the first float, and from a sequence and a head to the next
 */
function perQueryHead(
  m: Machine,
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
const valueUp: Executor = async (m, visit) => {
  const place = placed(visit);
  const { heads, headDim } = m.c.geometry;
  const rank = rankOf(m, 'value');
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
      weights: await m.weights.upColumns(place.layer, place.loop, 'value'),
      y: m.buffer(m.tokensOf(visit) === 'all' ? 'attention' : 'older'),
    },
  };
};

/** The part of attention that reads latents joins that of exact rows, with the mean of the values. */
const attendJoin: Executor = async (m, visit) => {
  const place = placed(visit);
  return {
    plan: plan(m, visit, { current: { heads: m.c.geometry.heads, group: m.group } }),
    buffers: {
      output: m.buffer('attention'),
      stats: m.buffer('stats'),
      latent: m.buffer('older'),
      latentStats: m.buffer('older stats'),
      valueMeans: await m.weights.mean(place.layer, place.loop, 'value'),
    },
  };
};

/** The mean of the values, and the current token's exact key and value. */
const attendCurrent: Executor = async (m, visit) => {
  const place = placed(visit);
  const { heads, headDim } = m.c.geometry;
  const { keys, values } = m.packed;
  const absorbed = pathSpec(m.c.path).branch;
  const packed = m.buffer('query key value');
  const current = { heads, group: m.group, keys, values };
  const shared = {
    output: m.buffer('attention'),
    stats: m.buffer('stats'),
    valueMeans: await m.weights.mean(place.layer, place.loop, 'value'),
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
  const branchRow = branchHeads(m) * m.c.branch.width;
  const branch = {
    width: m.c.branch.width,
    queries: { offset: rankOf(m, 'key'), stride: heads * width, head: width },
    keys: { offset: 0, stride: branchRow },
    heads: branchHeads(m),
  };
  return {
    plan: plan(m, visit, { current: { ...current, queries: m.packed.queries, branch } }),
    buffers: {
      ...shared,
      queries: packed,
      keyMeans: await m.weights.mean(place.layer, place.loop, 'key'),
      branchQueries: m.buffer('queries'),
      branchKeys: branchKeyOf(m, place),
    },
  };
};

/** W_k,tᵀ q of every query head, before the rotary branch of the same query; `set` 1 is that of the sinks. */
const queryAbsorb =
  (set: 0 | 1): Executor =>
  async (m, visit) => {
    const place = placed(visit);
    const { heads, headDim } = m.c.geometry;
    const width = m.queryWidth(place);
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
        weights: await m.weights.upRows(place.layer, place.loop, 'key'),
        y: m.buffer('queries'),
      },
    };
  };

/** The rotary branch's queries go beside the absorbed content queries; `set` 1 is that of the sinks. */
const ropeBranch =
  (set: 0 | 1): Executor =>
  (m, visit) => {
    const { heads } = m.c.geometry;
    const width = m.queryWidth(placed(visit));
    const target = { offset: set * m.batch * heads * width + rankOf(m, 'key'), stride: heads * width, head: width };
    const planned = plan(m, visit, { ...rotary(m), rope: { data: m.packed.branch, target, targetHeads: heads } });
    return Promise.resolve({
      plan: planned,
      buffers: {
        positions: m.buffer(set === 0 ? 'positions' : 'places'),
        turns: m.turns(m.c.branch.width),
        data: m.buffer('query key value'),
        target: m.buffer('queries'),
      },
    });
  };

const ropeBranchKey: Executor = (m, visit) =>
  Promise.resolve({
    plan: plan(m, visit, rotary(m)),
    buffers: {
      positions: m.buffer('positions'),
      turns: m.turns(m.c.branch.width),
      data: branchKeyOf(m, placed(visit)),
      target: m.buffer('unused output'),
    },
  });

/** Attention straight on latents, with absorbed queries. */
const attendAbsorbed: Executor = (m, visit) => {
  const place = placed(visit);
  const { heads, headDim } = m.c.geometry;
  const scale = (headDim + m.c.branch.width) ** -0.5;
  const part = m.partOf(visit);
  const cached = (role: CacheRole): Buffer => m.caches.buffer(role, place, place.loop, part.index);
  const planned = plan(m, visit, { scale, run: runOf(m, visit, secondQuery(m, place), part.count) });
  const buffers = {
    queries: m.queries(part, heads * m.queryWidth(place)),
    keys: cached('key-latent'),
    values: cached('value-latent'),
    branch: cached('rotary-key'),
    partials: m.partials(planned),
    spans: m.spans(part, visit),
    scores: scoresOf(m, part),
  };
  return Promise.resolve({ plan: planned, buffers });
};

/** Where kernels that rotate latents find the positions of a part's pinned tokens. */
function pinnedPositions(
  m: Machine,
  place: Place,
  part: CachePart,
): { options: { positionsByHead?: boolean; pairing: 'half-split' | 'adjacent' }; buffer: Dispatch['buffers'][string] } {
  const { pairing } = m.c.geometry.rope;
  const { capacity, pinned } = m.caches.slots;
  if (pinned === 0) return { options: { pairing }, buffer: m.buffer('unused') };
  if (pinsSinks(m.c.eviction)) return { options: { pairing }, buffer: m.own('pinned positions', part, capacity) };
  const byHead = evictingRows(m.c, place.block) > 1;
  return {
    options: { pairing, ...(byHead ? { positionsByHead: true } : {}) },
    buffer: m.evictionBuffer('positions', place, part),
  };
}

/**
 * Attention over latents with keys rebuilt inside. `only`: the pinned tokens, where another kernel attends to the
 * others.
 */
const attendRebuild =
  (only?: 'pinned'): Executor =>
  async (m, visit) => {
    const place = placed(visit);
    const { heads, headDim } = m.c.geometry;
    const part = m.partOf(visit);
    const { options, buffer } = pinnedPositions(m, place, part);
    const run = { ...runOf(m, visit, false, part.count), ...(only ? { only } : {}) };
    const planned = plan(m, visit, { ...rotary(m), ...options, run });
    return {
      plan: planned,
      buffers: {
        queries: m.queries(part, heads * headDim),
        keys: m.caches.buffer('key-latent', place, place.loop, part.index),
        values: m.caches.buffer('value-latent', place, place.loop, part.index),
        partials: m.partials(planned),
        spans: m.spans(part, visit),
        scores: scoresOf(m, part),
        positions: buffer,
        weights: await m.weights.upRows(place.layer, place.loop, 'key'),
        means: await m.weights.mean(place.layer, place.loop, 'key'),
        turns: m.turns(headDim),
      },
    };
  };

/** Rebuilds the rows of one layer and loop in memory. */
const rebuild =
  (axis: CodecAxis): Executor =>
  async (m, visit) => {
    const place = placed(visit);
    const part = m.partOf(visit);
    const { options, buffer } = pinnedPositions(m, place, part);
    return {
      plan: plan(m, visit, { ...rotary(m), ...options, run: runOf(m, visit, false, part.count) }),
      buffers: {
        keys: m.caches.buffer(axis === 'key' ? 'key-latent' : 'value-latent', place, place.loop, part.index),
        weights: await m.weights.upRows(place.layer, place.loop, axis),
        means: await m.weights.mean(place.layer, place.loop, axis),
        spans: m.spans(part, visit),
        positions: buffer,
        turns: m.turns(m.c.geometry.headDim),
        rows: m.buffer(rebuiltRows(axis === 'key' ? 'keys' : 'values', part.index)),
      },
    };
  };

/** Centred latents join the cache. */
const appendLatent =
  (axis: CodecAxis): Executor =>
  async (m, visit) => {
    const place = placed(visit);
    const at = { offset: 0, stride: latentRows(m) * rankOf(m, axis) };
    return appendTo(m, visit, axis === 'key' ? 'key-latent' : 'value-latent', {
      rows: latentOf(m, place, axis),
      at,
      bias: await m.weights.centre(place.layer, place.loop, axis),
    });
  };

const appendBranch: Executor = (m, visit) =>
  Promise.resolve(
    appendTo(m, visit, 'rotary-key', {
      rows: branchKeyOf(m, placed(visit)),
      at: { offset: 0, stride: branchHeads(m) * m.c.branch.width },
    }),
  );

const branchKey: Executor = (m, visit) => {
  const place = placed(visit);
  const outputs = branchHeads(m) * m.c.branch.width;
  return project(m, visit, {
    weights: `branch key ${place.layer}`,
    pieces: [{ tensor: branchTensor(place.layer, 'key'), outputs, kind: 'codec' }],
    x: m.normed,
    y: branchKeyOf(m, place),
    to: { offset: 0, stride: outputs },
  });
};

const reconstructedOf = (m: Machine, axis: CodecAxis) =>
  m.buffer(axis === 'key' ? 'reconstructed keys' : 'reconstructed values');
const reconstructedRow = (m: Machine): number => restoredLoops(m.c) * m.c.geometry.kvHeads * m.c.geometry.headDim;

/**
 * fast: rows of the loops of a latent. With one latent a KV head a loop is an operation of its own.
 * @param first float of the first row of latents
 */
export async function restore(
  m: Machine,
  visit: Visit,
  axis: CodecAxis,
  { x: latents, first = 0, y: rows }: { x: Buffer; first?: number; y: Buffer },
): Promise<Dispatch> {
  const place = placed(visit);
  const { kvHeads, headDim } = m.c.geometry;
  const rank = rankOf(m, axis);
  const buffers = { x: latents, y: rows };
  if (codecSpec(m.c.codec).latentFor === 'all-heads') {
    const at = { x: { offset: first, row: rank }, y: { row: reconstructedRow(m) } };
    return {
      plan: plan(m, visit, { matmul: at }),
      buffers: { ...buffers, weights: await m.weights.upStacked(place.layer, place.loop, axis) },
    };
  }
  const x: Rows = { offset: first, row: kvHeads * rank, group: rank };
  const y: Rows = { offset: restoredAt(m, visit), row: reconstructedRow(m), group: headDim };
  return {
    plan: plan(m, visit, { matmul: { x, y } }),
    buffers: { ...buffers, weights: await m.weights.upColumns(place.layer, loopOf(visit), axis) },
  };
}

const reconstruct =
  (axis: CodecAxis): Executor =>
  (m, visit) =>
    restore(m, visit, axis, { x: latentOf(m, placed(visit), axis), y: reconstructedOf(m, axis) });

/** The loop whose rows an operation works on. */
export const loopOf = (visit: Visit): number => visit.op.loop ?? placed(visit).loop;
/** First float of a loop's rows among those of all loops that a latent stands for. */
const restoredAt = (m: Machine, visit: Visit): number =>
  (visit.op.loop ?? 0) * m.c.geometry.kvHeads * m.c.geometry.headDim;

/**
 * The terms to add to reconstructed rows: mu, and the term that centring the latent would have subtracted. [KV
 * head][component] of a loop.
 */
function fastMean(m: Machine, place: Place, loop: number, axis: CodecAxis): Float64Array {
  const { kvHeads, headDim } = m.c.geometry;
  const rank = rankOf(m, axis);
  const out = m.weights.meanOf(place.layer, loop, axis);
  const centre = m.weights.centreOf(place.layer, loop, axis);
  for (let head = 0; head < kvHeads; head++) {
    const up = m.weights.upOf(place.layer, loop, axis, head);
    const latent = latentRows(m) === 1 ? 0 : head * rank;
    for (let i = 0; i < headDim; i++) {
      for (let r = 0; r < rank; r++)
        out[head * headDim + i] =
          (out[head * headDim + i] as number) + (up[i * rank + r] as number) * (centre[latent + r] as number);
    }
  }
  return out;
}

/** Means of the keys of a latent's loops, end to end; of the values of one. */
const restoredKeyMean = (m: Machine, place: Place): Promise<Buffer> =>
  m.weights.vector(
    `${codecTensor(place.layer, 'key', 'mean')} of loop ${spansLoops(m.c) ? 'all' : place.loop}, reconstructed`,
    'codec',
    () =>
      Float32Array.from(
        Array.from({ length: restoredLoops(m.c) }, (_, i) => [
          ...fastMean(m, place, spansLoops(m.c) ? i : place.loop, 'key'),
        ]).flat(),
      ),
  );
const restoredValueMean = (m: Machine, place: Place, loop: number): Promise<Buffer> =>
  m.weights.vector(`${codecTensor(place.layer, 'value', 'mean')} of loop ${loop}, reconstructed`, 'codec', () =>
    Float32Array.from(fastMean(m, place, loop, 'value')),
  );

/** Rotates restored keys, with their mean. @param first added to every position */
export async function rotateRestored(
  m: Machine,
  visit: Visit,
  { rows, positions, first = 0 }: { rows: Buffer; positions: Buffer; first?: number },
): Promise<Dispatch> {
  const bias = await restoredKeyMean(m, placed(visit));
  return {
    plan: plan(m, visit, { ...rotary(m), rope: { bias: true, positionOffset: first } }),
    buffers: { positions, turns: m.turns(m.c.geometry.headDim), data: rows, target: m.buffer('unused output'), bias },
  };
}

/** Where the restored rows of an operation's loop are, and the terms still to be added. */
export async function restoredRows(
  m: Machine,
  visit: Visit,
  axis: CodecAxis,
): Promise<{ loop: number; at: Vectors; bias?: Buffer }> {
  const loop = loopOf(visit);
  return {
    loop,
    at: { offset: restoredAt(m, visit), stride: reconstructedRow(m) },
    ...(axis === 'value' ? { bias: await restoredValueMean(m, placed(visit), loop) } : {}),
  };
}

const ropeWrite: Executor = (m, visit) =>
  rotateRestored(m, visit, { rows: reconstructedOf(m, 'key'), positions: m.buffer('positions') });

const appendReconstructed =
  (axis: CodecAxis): Executor =>
  async (m, visit) =>
    appendTo(m, visit, axis, { rows: reconstructedOf(m, axis), ...(await restoredRows(m, visit, axis)) });

export const LATENT_EXECUTORS: Readonly<Record<string, Executor>> = {
  'encode-k': encode('key'),
  'encode-v': encode('value'),
  'branch-key': branchKey,
  'rope-branch': ropeBranch(0),
  'rope-branch-key': ropeBranchKey,
  'query-absorb': queryAbsorb(0),
  'query-absorb-sinks': queryAbsorb(1),
  'rebuild-k': rebuild('key'),
  'rebuild-v': rebuild('value'),
  ...BLOCK_EXECUTORS,
  'value-up': valueUp,
  'attend-current': attendCurrent,
  'attend-join': attendJoin,
  'attend-sinks': attendRebuild('pinned'),
  'reconstruct-k': reconstruct('key'),
  'reconstruct-v': reconstruct('value'),
  'rope-write': ropeWrite,
  'append-branch': appendBranch,
};

/** Executors of one label whose kernel or rows depend on the path. */
export const attendLatent = { absorbed: attendAbsorbed, rebuild: attendRebuild(), blocks: attendBlocks };
export const ropeSinksAbsorbed = ropeBranch(1);
export const appendByPath =
  (axis: CodecAxis, fullWidth: Executor): Executor =>
  (m, visit: Visit) => {
    const core = placed(visit).block.name === 'core' && isLatent(m.c.codec);
    return (core ? (pathSpec(m.c.path).restores ? appendReconstructed(axis) : appendLatent(axis)) : fullWidth)(
      m,
      visit,
    );
  };
