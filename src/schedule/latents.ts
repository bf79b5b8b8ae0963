/** Attention of a step over latents: absorbed, rotated, rebuilt, or by blocks. */
import { pathSpec } from '../codecs/paths.js';
import { isHybrid } from '../codecs/registry.js';
import { pinsSinks, reindexes, segmentsOf, type Segments } from '../eviction/policy.js';
import { blockComponents } from '../../kernels/block_vectors/terms.js';
import type { Rows } from '../../kernels/placement.js';
import { blockPlan } from '../../kernels/shared/block/block-absorbed.js';
import { attendAndMerge, fullWidth, type Layer, type Merge, type Segment } from './attend.js';
import { codecPlace, placed, type BufferRef, type Bound, type Ref } from './bind/refs.js';
import type { StepFrame } from './bind/step.js';
import { AXES, branchHeadsOf, groupSizeOf, latentsOf, NAME, rankOf, type Axis, type Visit } from './configuration.js';
import { branchWidth, evictingRows, latentsByLoop, windowOf, type LoopLatents } from './facts.js';
import { inEachPart, op, perHead, withMore, type Bind, type Op } from './op.js';

/** Attention over cached latents, or rows rebuilt from them, and the current token. */
export function latentOps(l: Layer): Op[] {
  const { c, storage } = l;
  const all = segmentsOf(c.eviction, l.context);
  const window = Math.min(windowOf(c, l.block), all.ring);
  const kept = { ...all, ring: all.ring - window };
  const n = kept.pinned + kept.ring;
  const recent =
    window > 0 ? fullWidth(l, storage, { attend: 'attend-recent', reads: 'recent' }, { pinned: 0, ring: window }) : [];
  if (n === 0) return recent;
  if (c.materialised) return [...AXES.flatMap((axis) => rebuildOps(l, axis, n)), ...fullWidth(l, 'f16')];
  const last = window > 0 ? [...recent, joinOp(l)] : [currentOp(l)];
  if (pathSpec(c.path).rotated) return [...latentsByLoop(c).flatMap((ranks) => rotatedOps(l, kept, ranks)), ...last];
  const attends = l.absorbed
    ? absorbedOps(l, kept)
    : pathSpec(c.path).blocks
      ? blockOps(l, kept)
      : latentMerge(l, [rebuildSegment(l, 'attend', kept)], l.kvHeads);
  return [...attends, valueUp(l, rankOf(c, 'value')), ...last];
}

/** Attention over latents, merged before values are brought to full width. */
const latentMerge = (
  l: Layer,
  segments: readonly Segment[],
  rowsEach: number,
  width = rankOf(l.c, 'value'),
  setUp?: Merge['setUp'],
): Op[] => {
  const stats = l.reads === 'all' ? 'stats' : 'older stats';
  return attendAndMerge(l, l.storage, segments, { rowsEach, width, setUp, reads: l.reads, output: 'merged', stats });
};

/** The first float of an operation's rows, and from a sequence and a head to the next. */
interface HeadRows {
  readonly offset: number;
  readonly row: number;
  readonly head: number;
}

/** A product of every query head with its KV head's matrix. With several sequences each head is a group. */
function perQueryHead(
  { batch, heads, kvHeads, group }: Layer,
  label: string,
  k: number,
  n: number,
  of: (f: StepFrame, visit: Visit) => { x: HeadRows; y: HeadRows; binds: Bound['binds'] },
): Op {
  const byHead = batch === 1;
  const binds: Bind = (f: StepFrame, visit: Visit) => {
    const { x, y, binds } = of(f, visit);
    const rows = ({ offset, row, head }: HeadRows): Rows =>
      byHead ? { offset, row: head, group: group * head } : { offset, row, group: head };
    return { options: { matmul: { x: rows(x), y: rows(y), weightGroup: byHead ? 1 : group } }, binds };
  };
  return byHead ? perHead(label, kvHeads, group, k, n, binds) : perHead(label, heads, batch, k, n, binds);
}

/** Matrices of a loop that bring queries to latents, or latents of values to heads. */
function upMap({ c }: Layer, visit: Visit, axis: Axis): Ref {
  if (isHybrid(c.codec)) return { weights: 'map', ...codecPlace(visit), map: axis };
  return { weights: axis === 'key' ? 'up-rows' : 'up-columns', ...codecPlace(visit), axis };
}

/** Σ p c_v becomes Σ p v, without the mean. */
function valueUp(l: Layer, rank: number): Op {
  const { headDim } = l.c.geometry;
  return perQueryHead(l, 'value-up', rank, headDim, (f, visit) => ({
    x: { offset: 0, row: l.heads * rank, head: rank },
    y: { offset: 0, row: l.heads * headDim, head: headDim },
    binds: {
      x: f.buffer('merged'),
      weights: upMap(l, visit, 'value'),
      y: f.buffer(l.reads === 'all' ? 'attention' : 'older'),
    },
  }));
}

/** W_k,tᵀ q of every query head. @param width from a head to the next @param set 1 is that of the sinks */
const queryAbsorb = (l: Layer, label: string, rank: number, width: number, into: string, set: 0 | 1 = 0): Op =>
  perQueryHead(l, label, l.c.geometry.headDim, rank, (f, visit) => {
    const { rows, at } = f.inPacked('queries');
    return {
      x: { offset: at.offset, row: at.stride, head: l.c.geometry.headDim },
      y: { offset: set * l.batch * l.heads * width, row: l.heads * width, head: width },
      binds: { x: rows, weights: upMap(l, visit, 'key'), y: f.buffer(into) },
    };
  });

/** Means of a loop's values; rotated latents have none. */
const valueMeans = ({ c }: Layer, f: StepFrame, visit: Visit): Ref =>
  isHybrid(c.codec) ? f.buffer('no means') : { weights: 'mean', ...codecPlace(visit), axis: 'value' };

/** The part of attention that reads latents joins that of exact rows, with the mean of the values. */
function joinOp(l: Layer): Op {
  const binds: Bind = (f: StepFrame, visit: Visit) => ({
    options: { current: { heads: l.heads, group: l.group } },
    binds: {
      output: f.buffer('attention'),
      stats: f.buffer('stats'),
      latent: f.buffer('older'),
      latentStats: f.buffer('older stats'),
      valueMeans: valueMeans(l, f, visit),
    },
  });
  return op('attend-join', 'attend_join', 'f32', { rows: l.batch * l.heads, width: l.c.geometry.headDim }, binds);
}

/** The mean of the values, and the current token's exact key and value. */
function currentOp(l: Layer): Op {
  const { c, batch, heads, group, absorbed } = l;
  const { headDim } = c.geometry;
  const binds: Bind = (f: StepFrame, visit: Visit) => {
    const { keys, values, queries } = f.packed;
    const packed = f.buffer('query key value');
    const current = { heads, group, keys, values };
    const shared = {
      output: f.buffer('attention'),
      stats: f.buffer('stats'),
      valueMeans: valueMeans(l, f, visit),
      newKeys: packed,
      newValues: packed,
    };
    if (!absorbed)
      return {
        options: { current: { ...current, queries: { offset: 0, stride: f.headWords } } },
        binds: { ...shared, queries: f.buffer('queries') },
      };
    const width = rankOf(c, 'key') + c.branch.width;
    const { rows: branchKeys, at } = f.branchKeys(visit);
    const branch = {
      width: c.branch.width,
      queries: { offset: rankOf(c, 'key'), stride: heads * width, head: width },
      keys: at,
      heads: branchHeadsOf(c),
    };
    return {
      options: { current: { ...current, queries, branch } },
      binds: {
        ...shared,
        queries: packed,
        keyMeans: { weights: 'mean', ...codecPlace(visit), axis: 'key' },
        branchQueries: f.buffer('queries'),
        branchKeys,
      },
    };
  };
  const shape = { rows: batch * heads, keyWidth: headDim + branchWidth(c, l.block), valueWidth: headDim };
  return op('attend-current', 'attend_current', absorbed ? 'absorbed' : 'f32', shape, binds);
}

/** Attention straight on latents, with absorbed queries before the rotary branch of the same query. */
function absorbedOps(l: Layer, tokens: Segments): Op[] {
  const { c, block, heads, reads } = l;
  const [latents, rankK, rankV] = [latentsOf(c), rankOf(c, 'key'), rankOf(c, 'value')];
  const shape = {
    kvHeads: latents,
    group: heads / latents,
    keyWidth: rankK,
    valueWidth: rankV,
    branchWidth: branchWidth(c, block),
    branchHeads: branchHeadsOf(c),
  };
  const width = rankK + c.branch.width;
  const binds: Bind = (f: StepFrame, visit: Visit) => ({
    options: { scale: (c.geometry.headDim + c.branch.width) ** -0.5, run: f.run(visit, reads, l.second) },
    binds: {
      queries: f.queries(visit, heads * width),
      branch: f.cached(visit, 'rotary-key', reads),
      ...f.attends(visit, reads, 'key-latent', 'value-latent'),
    },
  });
  return [
    queryAbsorb(l, 'query-absorb', rankK, width, 'queries'),
    ...(reindexes(c.eviction) ? [queryAbsorb(l, 'query-absorb-sinks', rankK, width, 'queries', 1)] : []),
    ...latentMerge(l, [{ label: 'attend', kernel: 'attend', tokens, shape, binds }], latents),
  ];
}

/** Attention of the loops that read some rotated latents: queries are brought to them, and values back to heads. */
function rotatedOps(l: Layer, tokens: Segments, { rankK, rankV, read }: LoopLatents): Op[] {
  const { c, batch, heads, reads } = l;
  const { headDim: d, rope } = c.geometry;
  const shape = { kvHeads: 1, group: heads, keyWidth: rankK, valueWidth: rankV, branchWidth: 0, branchHeads: 0 };
  const turn: Bind = (f, visit) =>
    f.rotate(visit, { rows: f.buffer('latent queries'), at: { offset: 0, stride: heads * rankK } }, d);
  const binds: Bind = (f: StepFrame, visit: Visit) => {
    const first = placed(visit).loop === 0 ? 'first-' : '';
    return {
      options: { scale: d ** -0.5, run: f.run(visit, reads) },
      binds: {
        queries: f.own('latent queries', visit, heads * rankK),
        ...f.attends(visit, reads, `${first}key-latent`, `${first}value-latent`),
      },
    };
  };
  return [
    queryAbsorb(l, 'query-absorb', rankK, rankK, 'latent queries'),
    op('rope-latent-query', 'rope', rope.pairing, { rows: batch, heads: heads * (rankK / d), headDim: d }, turn),
    ...latentMerge(l, [{ label: 'attend', kernel: 'attend', tokens, shape, binds }], 1, rankV),
    valueUp(l, rankV),
  ].map((o) => ({ ...o, when: read }));
}

/** A call that rebuilds rows from latents. `only`: the pinned tokens alone. */
function rebuilding(l: Layer, f: StepFrame, visit: Visit, axis: Axis, only?: 'pinned'): Required<Bound> {
  const { byHead, positions } = pinnedPositions(l, f, visit);
  const { pairing } = l.c.geometry.rope;
  const run = { ...f.run(visit, l.reads), ...(only ? { only } : {}) };
  return {
    options: { ...f.rotary, pairing, ...(byHead ? { positionsByHead: true } : {}), run },
    binds: {
      keys: f.cached(visit, `${axis}-latent`, l.reads),
      weights: { weights: 'up-rows', ...codecPlace(visit), axis },
      means: { weights: 'mean', ...codecPlace(visit), axis },
      positions,
      turns: f.buffer(`rotary table ${l.c.geometry.headDim}`),
    },
  };
}

/** Where kernels that rebuild rows from latents find the positions of a part's pinned tokens. */
function pinnedPositions({ c, block }: Layer, f: StepFrame, visit: Visit): { byHead?: boolean; positions: BufferRef } {
  const { capacity, pinned } = f.caches.slots;
  if (pinned === 0) return { positions: f.buffer('unused') };
  if (pinsSinks(c.eviction)) return { positions: f.own('pinned positions', visit, capacity) };
  return { byHead: evictingRows(c, block) > 1, positions: f.evicting('positions', visit) };
}

/** Rebuilds the rows of one layer and loop in memory. */
function rebuildOps(l: Layer, axis: Axis, context: number): Op[] {
  const { c, kvHeads, parts, storage } = l;
  const binds: Bind = (f: StepFrame, visit: Visit) => {
    const { options, binds } = rebuilding(l, f, visit, axis);
    return { options, binds: { ...binds, spans: f.spans(visit, l.reads), rows: f.rebuiltRows(axis, visit) } };
  };
  const each = { rank: rankOf(c, axis), headDim: c.geometry.headDim, groupSize: groupSizeOf(c) };
  const variant = `${storage}+${axis === 'key' ? 'rope' : 'plain'}`;
  return inEachPart(parts, (sequences) => {
    const shape = { sequences, kvHeads, latentHeads: latentsOf(c), context, ...each };
    return [op(`rebuild-${NAME[axis]}`, 'rebuild', variant, shape, binds)];
  });
}

/** What calls over latents are shaped by that rebuild keys, or need not. */
const latentShape = ({ c, kvHeads, group }: Layer) => ({
  kvHeads,
  latentHeads: latentsOf(c),
  group,
  rankK: rankOf(c, 'key'),
  rankV: rankOf(c, 'value'),
  headDim: c.geometry.headDim,
});

/** Attention over latents with keys rebuilt inside. `only`: where another kernel attends to the other tokens. */
function rebuildSegment(l: Layer, label: string, tokens: Segments, only?: 'pinned'): Segment {
  const binds: Bind = (f: StepFrame, visit: Visit) => {
    const { options, binds } = rebuilding(l, f, visit, 'key', only);
    const attends = f.attends(visit, l.reads, 'key-latent', 'value-latent');
    return { options, binds: { ...binds, queries: f.queries(visit), ...attends } };
  };
  return { label, kernel: 'attend_rebuild', tokens, shape: latentShape(l), binds };
}

const vectorsOf = (f: StepFrame, visit: Visit): BufferRef =>
  f.own('block vectors', visit, f.headWords * blockComponents(rankOf(f.c, 'key')));
/** The basis of a part's sequences: each part has been attended to before the next one writes its own. */
const basisOf = (f: StepFrame): BufferRef => ({ ...f.buffer('block basis'), words: 'planned' });

/** Attention without rebuilding keys, over the ring's latents, in blocks; pinned tokens are no part of it. */
function blockOps(l: Layer, { pinned, ring }: Segments): Op[] {
  const { c, heads, kvHeads, reads } = l;
  const { headDim, rope } = c.geometry;
  const rankK = rankOf(c, 'key');
  const { blockTokens, functions, setupPerRank } = blockPlan(rope.theta, headDim);
  const attend: Bind = (f: StepFrame, visit: Visit) => ({
    options: { ...f.rotary, run: f.run(visit, reads) },
    binds: {
      basis: basisOf(f),
      phi: { table: 'phi of blocks' },
      ...f.attends(visit, reads, 'key-latent', 'value-latent'),
    },
  });
  /** a_m and b_m of every query head. */
  const vectors: Bind = (f: StepFrame, visit: Visit) => ({
    options: { pairing: rope.pairing, blockVectors: { group: l.group } },
    binds: {
      queries: f.queries(visit),
      weights: { weights: 'up-rows', ...codecPlace(visit), axis: 'key' },
      means: { weights: 'mean', ...codecPlace(visit), axis: 'key' },
      vectors: vectorsOf(f, visit),
    },
  });
  /** Of every block of the ring. */
  const basis: Bind = (f: StepFrame, visit: Visit) => ({
    options: { ...f.rotary, run: f.run(visit, reads) },
    binds: {
      vectors: vectorsOf(f, visit),
      angles: { table: 'angles of blocks' },
      psi: { table: 'psi of blocks' },
      spans: f.spans(visit, reads),
      basis: basisOf(f),
    },
  });
  const setUp = (sequences: number): Op[] => {
    const ofVectors = { heads: sequences * heads, kvHeads, rankK, headDim };
    const plan = { sequences, heads, context: ring, rankK, headDim, blockTokens, functions, setupPerRank };
    return [
      op('block-vectors', 'block_vectors', 'f16', ofVectors, vectors),
      ...(ring > 0 ? [op('block-basis', 'block_basis', 'f32', plan, basis)] : []),
    ];
  };
  const segments: Segment[] = [
    {
      label: 'attend',
      kernel: 'attend_block_absorbed',
      tokens: { pinned: 0, ring },
      unit: blockTokens,
      shape: withMore(latentShape(l), { blockTokens, functions }),
      binds: attend,
    },
    rebuildSegment(l, 'attend-pinned', { pinned, ring: 0 }, 'pinned'),
  ];
  const read = segments.filter(({ tokens }) => tokens.pinned + tokens.ring > 0);
  return latentMerge(l, read, kvHeads, rankOf(c, 'value'), setUp);
}
