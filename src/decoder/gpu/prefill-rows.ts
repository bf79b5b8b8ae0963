/**
 * Rows of a prompt: encoding, rotation, keeping rows for attention, writing to and reading from the cache, and
 * attention itself. Positions are those of the run's tokens; buffers have rows of the run alone.
 */
import { pathSpec } from '../../codecs/paths.js';
import { isLatent } from '../../codecs/registry.js';
import { reindexes } from '../../eviction/policy.js';
import type { Buffer } from '../../gpu/index.js';
import type { AppendOptions } from '../../kernels/append/launch.js';
import type { PrefillOptions } from '../../kernels/shared/prefill.launch.js';
import type { Rows } from '../../kernels/matmul/launch.js';
import { spansLoops } from '../../schedule/configuration.js';
import { branchWidth, closingTime, readsLatents } from '../../schedule/eviction-ops.js';
import { keepsRows, shiftOf, storesRun, turnsQueries } from '../../schedule/prefill.js';
import type { CodecAxis } from '../tensors.js';
import { rotary } from './attention.js';
import { slotOf, type CacheRole } from './caches.js';
import { placed, plan } from './dense.js';
import { branchHeads, latentRows, loopOf, rankOf, restore, restoredRows, rotateRestored } from './latent.js';
import type { Dispatch, Vectors } from './machine.js';
import { keptSlots, storedLabel, type Prompt } from './prompt.js';
import type { Place, Visit } from '../../schedule/expand.js';

/** Binds an operation of a run, as `Executor` of dense.ts does for a step. */
export type Executor = (p: Prompt, visit: Visit) => Promise<Dispatch>;

/** First token of the chunk, within its run; of tokens before the run, their position. */
export const fromOf = ({ op }: Visit): number => op.from ?? 0;
export const rowsOf = ({ op }: Visit): number => (op.shape.m ?? op.shape.rows ?? op.shape.queries) as number;
export const positionOf = (p: Prompt, visit: Visit): number => p.before + fromOf(visit);
/** Rows of a chunk in a buffer that has those of the whole run. */
export const chunkRows = (visit: Visit, width: number): Required<Pick<Rows, 'offset' | 'row'>> => ({
  offset: fromOf(visit) * width,
  row: width,
});
const ownLayer = (p: Prompt, place: Place): number => (spansLoops(p.m.c) ? place.layer : 0);
export const latentRow = (p: Prompt, axis: CodecAxis): Vectors => ({
  offset: 0,
  stride: latentRows(p.m) * rankOf(p.m, axis),
});
/**
 * The latents of a chunk: in an accumulator of the whole run, or encoded from all loops at once, where attention's
 * output will be.
 */
const latentsOf = (p: Prompt, visit: Visit, axis: CodecAxis): { rows: Buffer; at: Vectors } => {
  const { stride } = latentRow(p, axis);
  if (p.captures) return { rows: p.results, at: { offset: 0, stride } };
  return {
    rows: p.buffer(`latent ${axis} ${ownLayer(p, placed(visit))}`),
    at: { offset: fromOf(visit) * stride, stride },
  };
};
/** Branch keys of a chunk, or of a piece before its run, after those before them. */
export function branchRows(p: Prompt, visit: Visit, before = p.held): Vectors {
  const stride = branchHeads(p.m) * p.m.c.branch.width;
  return { offset: (before + fromOf(visit)) * stride, stride };
}
export const branchKeyOf = (p: Prompt, place: Place): Buffer => p.buffer(`branch key ${ownLayer(p, place)}`);
const isCoreLatent = (p: Prompt, place: Place): boolean => place.block.name === 'core' && isLatent(p.m.c.codec);

/** c (+)= x_t W_down,t of the chunk, of keys before their rotation. */
const encode =
  (axis: CodecAxis): Executor =>
  async (p, visit) => {
    const { m } = p;
    const from = axis === 'key' ? m.packed.keys : m.packed.values;
    const x: Rows = { offset: from.offset, row: from.stride, group: m.c.geometry.headDim };
    const { rows, at } = latentsOf(p, visit, axis);
    const y: Rows = { offset: at.offset, row: at.stride, group: rankOf(m, axis) };
    const weights = await m.weights.down(placed(visit).layer, loopOf(visit), axis);
    return {
      plan: plan(p.m, visit, { matmul: { x, y, accumulate: spansLoops(m.c) && loopOf(visit) > 0 } }),
      buffers: { x: p.projections, weights, y: rows },
    };
  };

/** Rotation in place, of rows at their positions. @param all of them are at one */
export function rotation(
  p: Prompt,
  visit: Visit,
  first: number,
  turns: Buffer,
  data: Vectors,
  buffer: Buffer,
  all = false,
): Dispatch {
  const planned = plan(p.m, visit, { ...rotary(p.m), rope: { data, positionOffset: first } });
  return {
    plan: planned,
    buffers: {
      positions: p.buffer(all ? 'one position' : 'positions'),
      turns,
      data: buffer,
      target: p.m.buffer('unused output'),
    },
  };
}
export const rotate =
  (turns: (p: Prompt) => Buffer, of: (p: Prompt, visit: Visit) => { data: Vectors; buffer: Buffer }): Executor =>
  (p, visit) => {
    const { data, buffer } = of(p, visit);
    return Promise.resolve(rotation(p, visit, positionOf(p, visit), turns(p), data, buffer));
  };
export const headTurns = (p: Prompt): Buffer => p.m.turns(p.m.c.geometry.headDim);
const branchTurns = (p: Prompt): Buffer => p.m.turns(p.m.c.branch.width);
const shift = (p: Prompt): number => shiftOf(p.m.c, p.before);
const isSink = ({ m: { c } }: Prompt, visit: Visit): boolean =>
  reindexes(c.eviction) && fromOf(visit) < c.eviction.sinkTokens;
/** Rebuilt keys: sinks are rotated to their place inside the cache. */
const rotateEarlier: Executor = (p, visit) =>
  Promise.resolve(
    rotation(p, visit, fromOf(visit) + (isSink(p, visit) ? shift(p) : 0), headTurns(p), p.m.packed.keys, p.projections),
  );
const rotateInside: Executor = (p, visit) =>
  Promise.resolve(rotation(p, visit, positionOf(p, visit) - shift(p), headTurns(p), p.m.packed.queries, p.projections));
const rotateOnward: Executor = (p, visit) =>
  Promise.resolve(rotation(p, visit, shift(p), headTurns(p), p.m.packed.queries, p.projections, true));
const rotateEarlierBranch: Executor = (p, visit) =>
  Promise.resolve(rotation(p, visit, shift(p), branchTurns(p), branchRow(p), p.buffer('earlier branch keys'), true));

/** Rows of one sequence: `first` is the slot of the run's first token. */
interface Rowset {
  readonly cache: Buffer;
  readonly capacity: number;
  readonly firstSequence: number;
  readonly first: number;
}

/** Where rows of the run are written and read again: in the cache, or beside one that is evicted from. */
export function ownRows(p: Prompt, role: CacheRole, place: Place, loop = place.loop): Rowset {
  if (p.aside)
    return {
      cache: p.aside.buffer(role, place, loop),
      capacity: p.aside.slots.capacity,
      firstSequence: 0,
      first: p.held,
    };
  if (storesRun(p.m.c))
    return { cache: p.buffer(storedLabel(role)), capacity: keptSlots(p.rows), firstSequence: 0, first: p.held };
  return inCache(p, role, place, loop);
}

export function inCache(p: Prompt, role: CacheRole, place: Place, loop = place.loop): Rowset {
  const { index, first } = p.m.caches.partOf(place.block.name, p.sequence);
  return {
    cache: p.m.caches.buffer(role, place, loop, index),
    capacity: p.m.caches.slots.capacity,
    firstSequence: p.sequence - first,
    first: p.before,
  };
}

/** Rows as attention reads them, in memory of their own. */
export const kept = (p: Prompt, side: CodecAxis, visit: Visit): Rowset => ({
  cache: p.kept(`${side}s`, visit),
  capacity: keptSlots(p.rows),
  firstSequence: 0,
  first: p.held,
});

/** Rows of the whole run as the cache will have them. */
export const runRows = (p: Prompt, role: CacheRole, visit: Visit): Rowset =>
  p.aside || storesRun(p.m.c) ? ownRows(p, role, placed(visit)) : kept(p, role as CodecAxis, visit);

/** Writes rows of the chunk behind those of the chunks before it. */
export function append(
  p: Prompt,
  visit: Visit,
  to: Rowset,
  from: {
    rows: Buffer;
    at: Vectors;
    bias?: Buffer;
    within?: number;
    slots?: Pick<AppendOptions, 'pinned' | 'ring' | 'sinks'>;
  },
): Dispatch {
  const options: AppendOptions = {
    capacity: to.capacity,
    chunk: rowsOf(visit),
    first: to.first + (from.within ?? fromOf(visit)),
    firstSequence: to.firstSequence,
    rowOffset: from.at.offset,
    rowStride: from.at.stride,
    ...(from.bias ? { bias: true } : {}),
    ...from.slots,
  };
  // The positions begin with 0.
  return {
    plan: plan(p.m, visit, { append: options }),
    buffers: {
      tokens: p.buffer('positions'),
      rows: from.rows,
      ...(from.bias ? { bias: from.bias } : {}),
      cache: to.cache,
    },
  };
}

export const keep =
  (side: CodecAxis): Executor =>
  (p, visit) =>
    Promise.resolve(append(p, visit, kept(p, side, visit), { rows: p.projections, at: p.m.packed[`${side}s`] }));

/** Rebuilt rows of tokens before the run overwrite its own, to which attention has been computed. */
const keepEarlier =
  (side: CodecAxis): Executor =>
  (p, visit) =>
    Promise.resolve(
      append(p, visit, kept(p, side, visit), { rows: p.projections, at: p.m.packed[`${side}s`], within: 0 }),
    );

/**
 * A token's rows join the cache: of full width as they were projected, or centred latents, or the rows of all loops
 * that a latent stands for.
 */
const appendRows =
  (axis: CodecAxis): Executor =>
  async (p, visit) => {
    const place = placed(visit);
    const { m } = p;
    if (!isCoreLatent(p, place))
      return append(p, visit, ownRows(p, axis, place), { rows: p.projections, at: m.packed[`${axis}s`] });
    if (pathSpec(m.c.path).restores) {
      const { loop, ...from } = await restoredRows(m, visit, axis);
      return append(p, visit, ownRows(p, axis, place, loop), { rows: p.projections, ...from });
    }
    const bias = await m.weights.centre(place.layer, place.loop, axis);
    return append(p, visit, ownRows(p, `${axis}-latent`, place), { ...latentsOf(p, visit, axis), bias });
  };

const appendBranch: Executor = (p, visit) => {
  const place = placed(visit);
  return Promise.resolve(
    append(p, visit, ownRows(p, 'rotary-key', place), { rows: branchKeyOf(p, place), at: branchRows(p, visit) }),
  );
};

const restoreRows =
  (axis: CodecAxis): Executor =>
  (p, visit) => {
    const { rows, at } = latentsOf(p, visit, axis);
    return restore(p.m, visit, axis, { x: rows, first: at.offset, y: p.projections });
  };

/** Cached rows from a slot on, as floats. */
export function load(
  p: Prompt,
  visit: Visit,
  { cache, capacity, firstSequence }: Rowset,
  slot: number,
  to: { rows: Buffer; at: Vectors },
): Dispatch {
  const chunk = rowsOf(visit);
  return {
    plan: plan(p.m, visit, { load: { capacity, chunk, first: slot, firstSequence, output: to.at } }),
    buffers: { cache, rows: to.rows },
  };
}

const branchRow = (p: Prompt): Vectors => ({ offset: 0, stride: branchHeads(p.m) * p.m.c.branch.width });

/** Rows of the chunk. Latents go where attention's output will be; rows of full width overwrite the chunk's own. */
const loadRows =
  (axis: CodecAxis): Executor =>
  (p, visit) => {
    const latents = readsLatents(p.m.c, placed(visit).block);
    const rows = ownRows(p, latents ? `${axis}-latent` : axis, placed(visit), loopOf(visit));
    return Promise.resolve(
      load(
        p,
        visit,
        rows,
        rows.first + fromOf(visit),
        latents ? { rows: p.results, at: latentRow(p, axis) } : { rows: p.projections, at: p.m.packed[`${axis}s`] },
      ),
    );
  };

const loadBranch: Executor = (p, visit) => {
  const rows = ownRows(p, 'rotary-key', placed(visit));
  return Promise.resolve(
    load(p, visit, rows, rows.first + fromOf(visit), { rows: branchKeyOf(p, placed(visit)), at: branchRows(p, visit) }),
  );
};

/** Slot of a token before the run. A piece of them has neighbouring slots. */
const slotBefore = (p: Prompt, visit: Visit): number => slotOf(p.m.caches.slots, fromOf(visit));

/** Rows of a piece before the run. */
const loadEarlier =
  (role: 'key-latent' | 'value-latent' | 'rotary-key', to: (p: Prompt) => { rows: Buffer; at: Vectors }): Executor =>
  (p, visit) =>
    Promise.resolve(load(p, visit, inCache(p, role, placed(visit)), slotBefore(p, visit), to(p)));
const latentsOfPiece = (axis: CodecAxis) => (p: Prompt) => ({
  rows: p.buffer('earlier latents'),
  at: latentRow(p, axis),
});
const branchOfPiece = (p: Prompt): { rows: Buffer; at: Vectors } => ({
  rows: p.buffer('earlier branch keys'),
  at: branchRow(p),
});

/** W_up,t c of latents that were read back; it overwrites the chunk's own keys or values. */
export const reconstruct =
  (axis: CodecAxis, latentsOf: (p: Prompt) => Buffer): Executor =>
  async (p, visit) => {
    const { m } = p;
    const [{ layer }, loop] = [placed(visit), loopOf(visit)];
    const { headDim } = m.c.geometry;
    const at = m.packed[`${axis}s`];
    const rank = rankOf(m, axis);
    const shared = latentRows(m) === 1;
    // The matrices that decoding has: by row for keys, which it rebuilds or absorbs, by column for values that follow
    // the sum.
    const byRow = axis === 'key' || m.c.materialised;
    const weights = byRow ? await m.weights.upRows(layer, loop, axis) : await m.weights.upColumns(layer, loop, axis);
    const x: Rows = { row: latentRows(m) * rank, group: shared ? 0 : rank };
    const y: Rows = { offset: at.offset, row: at.stride, group: headDim };
    return {
      plan: plan(m, visit, { matmul: { x, y, transposed: byRow } }),
      buffers: { x: latentsOf(p), weights, y: p.projections },
    };
  };

/** Adds mu_t to them. */
export const addMean =
  (axis: CodecAxis): Executor =>
  async (p, visit) => {
    const { m } = p;
    const placement = { input: { offset: 0, stride: 0 }, output: m.packed[`${axis}s`] };
    return {
      plan: plan(m, visit, { placement }),
      buffers: { input: await m.weights.mean(placed(visit).layer, loopOf(visit), axis), target: p.projections },
    };
  };

/** Where attention's queries lie, with those of the rotary branch. */
export function queriesOf({ m }: Prompt, { block }: Place): Pick<PrefillOptions, 'queries' | 'branch'> {
  const branched = branchWidth(m.c, block) > 0;
  return {
    queries: m.packed.queries,
    ...(branched
      ? {
          branch: {
            width: m.c.branch.width,
            heads: branchHeads(m),
            queries: { ...m.packed.branch, head: m.c.branch.width },
          },
        }
      : {}),
  };
}

/**
 * Attention over the shape's context, and the chunk itself where it is among the rows. @param keys of the rotary branch
 */
async function attention(
  p: Prompt,
  visit: Visit,
  rows: (side: CodecAxis) => Rowset,
  more: Pick<PrefillOptions, 'first' | 'carried'> = {},
  keys?: Buffer,
): Promise<Dispatch> {
  const { m } = p;
  const { op } = visit;
  const place = placed(visit);
  const { heads, headDim } = m.c.geometry;
  const { context = 0, queries = 0 } = op.shape;
  const { capacity, firstSequence } = rows('key');
  const at = queriesOf(p, place);
  const carries = op.kernel === 'attend_carried';
  const options: PrefillOptions = {
    capacity,
    firstSequence,
    ...at,
    output: { offset: 0, stride: heads * headDim },
    ...more,
  };
  const spans = await p.allocations.make(`span ${context} ${queries}`, 'control', 8);
  await m.device.write(spans, Uint32Array.of(context, queries));
  return {
    plan: plan(m, visit, { prefill: options }),
    buffers: {
      queries: p.projections,
      keys: rows('key').cache,
      values: rows('value').cache,
      output: p.results,
      spans,
      ...(at.branch ? { branchQueries: p.projections, branchKeys: keys ?? branchKeyOf(p, place) } : {}),
      ...(carries ? { statistics: p.buffer('statistics') } : {}),
    },
  };
}

/** The run's rows: kept ones, or those of the cache, which also holds the rows before it. */
const attend: Executor = async (p, visit) => {
  const rows = (side: CodecAxis): Rowset => (keepsRows(p.m.c) ? kept(p, side, visit) : inCache(p, side, placed(visit)));
  const turned = turnsQueries({ c: p.m.c, block: placed(visit).block, run: { from: p.before, tokens: p.tokens } });
  return attention(p, visit, rows, turned ? { carried: true } : {});
};
const attendEarlier: Executor = (p, visit) =>
  attention(
    p,
    visit,
    (side) => kept(p, side, visit),
    {},
    pathSpec(p.m.c.path).branch ? p.buffer('earlier branch keys') : undefined,
  );
/** Rows of the cache in neighbouring slots. @param carried state of the calls before */
const attendCached =
  (carried: boolean): Executor =>
  (p, visit) =>
    attention(p, visit, (side) => inCache(p, side, placed(visit)), { first: slotBefore(p, visit), carried });

/**
 * The run's rows that stay pass through the buffer of results, which the projection of attention's output has read by
 * then.
 */
function stayingExecutors(what: CodecAxis | 'rotary-key'): [string, Executor][] {
  const name = what === 'key' ? 'k' : what === 'value' ? 'v' : 'branch';
  const roleOf = (p: Prompt, { block }: Place): CacheRole =>
    what === 'rotary-key' || !readsLatents(p.m.c, block) ? what : `${what}-latent`;
  const rowOf = ({ op }: Visit): Vectors => ({
    offset: 0,
    stride: (op.shape.heads as number) * (op.shape.width as number),
  });
  const read: Executor = (p, visit) => {
    const from = p.aside ? ownRows(p, roleOf(p, placed(visit)), placed(visit)) : kept(p, what as CodecAxis, visit);
    return Promise.resolve(load(p, visit, from, fromOf(visit), { rows: p.results, at: rowOf(visit) }));
  };
  const write: Executor = (p, visit) => {
    const wasRead = p.aside !== undefined || closingTime(p.m.c, placed(visit).block) === 'closing-layer';
    const { offset, stride } = wasRead ? rowOf(visit) : p.m.packed[what === 'key' ? 'keys' : 'values'];
    // A chunk's rows begin with its first token.
    const at = { offset: offset + (wasRead ? 0 : (fromOf(visit) % p.chunkTokens) * stride), stride };
    const { pinned, ring, sinks } = p.m.caches.slots;
    return Promise.resolve(
      append(p, visit, inCache(p, roleOf(p, placed(visit)), placed(visit)), {
        rows: wasRead ? p.results : p.projections,
        at,
        slots: { pinned, ring, sinks },
      }),
    );
  };
  return [
    [`load-${name}-staying`, read],
    [`append-${name}-staying`, write],
  ];
}

/** Exact rows of a run's last tokens, into the window beside latents. */
const appendRecent =
  (axis: CodecAxis): Executor =>
  (p, visit) => {
    const { offset, stride } = p.m.packed[`${axis}s`];
    const { pinned, ring, sinks } = p.m.caches.recentSlots;
    return Promise.resolve(
      append(
        p,
        visit,
        { ...inCache(p, axis, placed(visit)), capacity: ring },
        {
          rows: p.projections,
          // A chunk's rows begin with its first token.
          at: { offset: offset + (fromOf(visit) % p.chunkTokens) * stride, stride },
          slots: { pinned, ring, sinks },
        },
      ),
    );
  };

/** By label of the operation. */
export const ROW_EXECUTORS: Readonly<Record<string, Executor>> = {
  'encode-k': encode('key'),
  'encode-v': encode('value'),
  rope: rotate(headTurns, (p) => ({ data: p.m.packed.queries, buffer: p.projections })),
  'rope-k': rotate(headTurns, (p) => ({ data: p.m.packed.keys, buffer: p.projections })),
  'rope-branch': rotate(branchTurns, (p) => ({ data: p.m.packed.branch, buffer: p.projections })),
  'rope-branch-key': rotate(branchTurns, (p, visit) => ({
    data: branchRows(p, visit),
    buffer: branchKeyOf(p, placed(visit)),
  })),
  'keep-k': keep('key'),
  'keep-v': keep('value'),
  'append-k': appendRows('key'),
  'append-v': appendRows('value'),
  'append-branch': appendBranch,
  'append-recent-k': appendRecent('key'),
  'append-recent-v': appendRecent('value'),
  'restore-k': restoreRows('key'),
  'restore-v': restoreRows('value'),
  'rope-write': (p, visit) =>
    rotateRestored(p.m, visit, { rows: p.projections, positions: p.buffer('positions'), first: positionOf(p, visit) }),
  'load-k': loadRows('key'),
  'load-v': loadRows('value'),
  'load-branch': loadBranch,
  'reconstruct-k': reconstruct('key', (p) => p.results),
  'reconstruct-v': reconstruct('value', (p) => p.results),
  'mean-k': addMean('key'),
  'mean-v': addMean('value'),
  attend,
  'load-k-earlier': loadEarlier('key-latent', latentsOfPiece('key')),
  'load-v-earlier': loadEarlier('value-latent', latentsOfPiece('value')),
  'load-branch-earlier': loadEarlier('rotary-key', branchOfPiece),
  'reconstruct-k-earlier': reconstruct('key', (p) => p.buffer('earlier latents')),
  'reconstruct-v-earlier': reconstruct('value', (p) => p.buffer('earlier latents')),
  'mean-k-earlier': addMean('key'),
  'mean-v-earlier': addMean('value'),
  'rope-k-earlier': rotateEarlier,
  'keep-k-earlier': keepEarlier('key'),
  'keep-v-earlier': keepEarlier('value'),
  'attend-earlier': attendEarlier,
  'attend-cached': attendCached(true),
  'attend-sinks': attendCached(false),
  'rope-inside': rotateInside,
  'rope-onward': rotateOnward,
  'rope-branch-earlier': rotateEarlierBranch,
  ...Object.fromEntries((['key', 'value', 'rotary-key'] as const).flatMap((what) => stayingExecutors(what))),
};
