/**
 * What operations bind that prompts alone have: attention over the run's rows and over those of tokens before it, rows
 * kept for attention, read back, reconstructed or captured, and rows that join a cache under eviction. Positions are
 * those of the run's tokens; buffers have rows of the run alone.
 */
import { pathSpec } from '../../codecs/paths.js';
import { reindexes } from '../../eviction/policy.js';
import type { PrefillOptions } from '../../../kernels/attention-options.js';
import { slotOf } from '../cache-map.js';
import { anchoredIn, latentsOf } from '../configuration.js';
import { closingTime, readsLatents } from '../eviction-ops.js';
import type { Visit } from '../expand.js';
import { keepsRows, shiftOf, rotatesQueries } from '../prefill/prefill.js';
import { SAME_ROW, type Bind, type Binds } from './dense.js';
import { countOf, fromOf, into, type PromptFrame, type Rowset } from './prompt.js';
import {
  loopOf,
  placed,
  type BufferRef,
  type Bound,
  type CacheRole,
  type Placed,
  type RowAxis,
  type WeightRef,
} from './refs.js';
import { append, rotate } from './rows.js';
import { branchBinds, evict, loadMass, mass, queriesOf, rotatePinned, slotHeld } from './prefill-eviction.js';

type PromptBind = Bind<PromptFrame>;
/** Rows that a layer caches. */
type Cached = RowAxis | 'rotary-key';

/**
 * Attention over the shape's context, and the chunk itself where it is among the rows. @param keys of the rotary branch
 */
function attention(
  f: PromptFrame,
  visit: Visit,
  rows: (axis: RowAxis) => Rowset,
  more: Pick<PrefillOptions, 'first' | 'carried'> = {},
  keys?: BufferRef,
): Bound {
  const { heads, headDim } = f.c.geometry;
  const { context = 0, queries = 0 } = visit.op.shape;
  const { capacity, firstSequence } = rows('key');
  const output = { offset: 0, stride: heads * headDim };
  return {
    options: { prefill: { capacity, firstSequence, ...queriesOf(f, visit), output, ...more } },
    binds: {
      queries: f.projections,
      keys: rows('key').cache,
      values: rows('value').cache,
      output: f.results,
      spans: { contents: `span ${context} ${queries}`, words: [context, queries] },
      ...branchBinds(f, visit, keys),
      ...(visit.op.kernel === 'attend_carried' ? { statistics: f.buffer('statistics') } : {}),
    },
  };
}

/** The run's rows: kept ones, or those of the cache, which also holds the rows before it. */
const attend: PromptBind = (f, visit) => {
  const rows = (axis: RowAxis): Rowset => (keepsRows(f.c) ? f.kept(axis, visit) : f.inCache(axis, visit));
  const rotated = rotatesQueries({ c: f.c, block: placed(visit).block, run: f.run });
  return attention(f, visit, rows, rotated ? { carried: true } : {});
};

const attendEarlier: PromptBind = (f, visit) => {
  const keys = pathSpec(f.c.path).branch ? earlierBranch(f).rows : undefined;
  return attention(f, visit, (axis) => f.kept(axis, visit), {}, keys);
};

/** Slot of a token before the run. A piece of them has neighbouring slots. */
const slotBefore = (f: PromptFrame, visit: Visit): number => slotOf(f.caches.slots, fromOf(visit));

/** Rows of the cache in neighbouring slots. @param carried state of the calls before */
const attendCached =
  (carried: boolean): PromptBind =>
  (f, visit) =>
    attention(f, visit, (axis) => f.inCache(axis, visit), { first: slotBefore(f, visit), carried });

const earlierBranch = (f: PromptFrame): Placed => ({
  rows: f.buffer('earlier branch keys'),
  at: { offset: 0, stride: f.branchHeads * f.c.branch.width },
});

/** Cached rows from a slot on, as floats. */
const load = (visit: Visit, { cache, capacity, firstSequence }: Rowset, slot: number, { rows, at }: Placed): Bound => ({
  options: { load: { capacity, chunk: countOf(visit), first: slot, firstSequence, output: at } },
  binds: { cache, rows },
});

/** The role of a layer's rows. */
const roleOf = (f: PromptFrame, visit: Visit, what: Cached): CacheRole =>
  what !== 'rotary-key' && readsLatents(f.c, placed(visit).block) ? `${what}-latent` : what;

/** Latents that are read go where attention's output will be; rows of full width overwrite the chunk's own. */
const loaded = (f: PromptFrame, visit: Visit, axis: RowAxis): Placed =>
  readsLatents(f.c, placed(visit).block) ? f.chunkLatents(axis) : f.projected(axis);

/** Rows of the chunk. */
const loadOwn =
  (what: Cached): PromptBind =>
  (f, visit) => {
    const rows = f.ownRows(roleOf(f, visit, what), visit, what === 'rotary-key' ? undefined : loopOf(visit));
    const to = what === 'rotary-key' ? f.branchKeys(visit) : loaded(f, visit, what);
    return load(visit, rows, rows.first + fromOf(visit), to);
  };

/** Rows of a piece before the run. */
const loadEarlier =
  (what: Cached): PromptBind =>
  (f, visit) => {
    const to =
      what === 'rotary-key' ? earlierBranch(f) : { ...f.chunkLatents(what), rows: f.buffer('earlier latents') };
    const role = what === 'rotary-key' ? what : (`${what}-latent` as const);
    return load(visit, f.inCache(role, visit), slotBefore(f, visit), to);
  };

/** Where rows of held tokens go that are read from the cache: branch keys lie before those of the run. */
const heldRows = (f: PromptFrame, what: Cached, visit: Visit): Placed =>
  what === 'rotary-key' ? f.branchKeys(visit, fromOf(visit)) : loaded(f, visit, what);

const loadHeld =
  (what: Cached): PromptBind =>
  (f, visit) =>
    load(visit, f.inCache(roleOf(f, visit, what), visit), slotHeld(f, fromOf(visit)), heldRows(f, what, visit));

/** After the rows of earlier pieces, where the run's are stored beside the cache. */
const stashHeld =
  (what: Cached): PromptBind =>
  (f, visit) => {
    const to = into(visit, { ...f.ownRows(roleOf(f, visit, what), visit), first: 0 });
    return append(f, to, heldRows(f, what, visit));
  };

/** Rows of full width, as attention reads them. `within`: where they begin, those of the chunk unless given. */
const keep =
  (axis: RowAxis, whose: 'own' | 'earlier' | 'held' = 'own'): PromptBind =>
  (f, visit) => {
    const rows = f.kept(axis, visit);
    // Rebuilt rows of tokens before the run overwrite its own, to which attention has been computed.
    const to =
      whose === 'earlier' ? into(visit, rows, 0) : into(visit, whose === 'held' ? { ...rows, first: 0 } : rows);
    return append(f, to, f.projected(axis));
  };

/** W_up,t c of latents that were read back; it overwrites the chunk's own keys or values. */
const reconstruct =
  (axis: RowAxis, latents: 'results' | 'earlier latents' = 'results'): PromptBind =>
  (f, visit) => {
    const { layer } = placed(visit);
    const { rows, at } = f.projected(axis);
    // The matrices that decoding has: by row for keys, which it rebuilds or absorbs, by column for values that follow
    // the sum.
    const byRow = axis === 'key' || f.c.materialised;
    const weights: WeightRef = { weights: byRow ? 'up-rows' : 'up-columns', layer, loop: loopOf(visit), axis };
    const x = { row: f.latentRow(axis), group: latentsOf(f.c) === 1 ? 0 : f.rankOf(axis) };
    const y = { offset: at.offset, row: at.stride, group: f.c.geometry.headDim };
    return {
      options: { matmul: { x, y, transposed: byRow } },
      binds: { x: f.buffer(latents), weights, y: rows },
    };
  };

/** Adds mu_t to them. */
const addMean =
  (axis: RowAxis): PromptBind =>
  (f, visit) => {
    const { rows, at } = f.projected(axis);
    const input: WeightRef = { weights: 'mean', layer: placed(visit).layer, loop: loopOf(visit), axis };
    return { options: { placement: { input: SAME_ROW, output: at } }, binds: { input, target: rows } };
  };

/** Captured rows of a chunk, where its own were projected. */
const capture =
  (axis: RowAxis): PromptBind =>
  (f, visit) =>
    load(visit, f.kept(axis, visit), fromOf(visit), f.projected(axis));

/** Captured rows of a loop, beside those of the loops that are stored with it. */
const hold =
  (axis: RowAxis): PromptBind =>
  (f, visit) => {
    const { rows, at, loopStride } = f.waiting(visit);
    const offset = at.offset + (loopOf(visit) % anchoredIn(f.c, placed(visit).block)) * loopStride;
    return load(visit, f.kept(axis, visit), fromOf(visit), { rows, at: { ...at, offset } });
  };

/**
 * The run's rows that stay pass through the buffer of results, which the projection of attention's output has read by
 * then.
 */
const through = (f: PromptFrame, { op }: Visit): Placed => ({
  rows: f.results,
  at: { offset: 0, stride: (op.shape.heads as number) * (op.shape.width as number) },
});
const loadStaying =
  (what: Cached): PromptBind =>
  (f, visit) => {
    const from = f.setting.aside ? f.ownRows(roleOf(f, visit, what), visit) : f.kept(what as RowAxis, visit);
    return load(visit, from, fromOf(visit), through(f, visit));
  };
const appendStaying =
  (what: Cached): PromptBind =>
  (f, visit) => {
    const wasRead = f.setting.aside !== undefined || closingTime(f.c, placed(visit).block) === 'closing-layer';
    const to = into(visit, f.inCache(roleOf(f, visit, what), visit), fromOf(visit), f.caches.slots);
    return wasRead
      ? append(f, to, through(f, visit))
      : append(f, { ...to, row: f.rowOf(visit) }, f.projected(what as RowAxis));
  };

const shift = (f: PromptFrame): number => shiftOf(f.c, f.before);
/**
 * Heads of full width: queries, or keys. @param positionOffset in place of the position of the operation's first row
 */
const rotateHeads = (f: PromptFrame, visit: Visit, what: 'queries' | 'keys', positionOffset?: number): Bound =>
  rotate(f, visit, f.inPacked(what), f.c.geometry.headDim, positionOffset === undefined ? {} : { positionOffset });

/** Rebuilt keys: sinks are rotated to their place inside the cache. */
const rotateEarlier: PromptBind = (f, visit) => {
  const { eviction } = f.c;
  const sink = reindexes(eviction) && fromOf(visit) < eviction.sinkTokens;
  return rotateHeads(f, visit, 'keys', fromOf(visit) + (sink ? shift(f) : 0));
};

/** Rotation of all rows by as much as evicted tokens take away. */
const rotateShift = (f: PromptFrame, visit: Visit, of: Placed, width: number): Bound =>
  rotate(f, visit, of, width, { positionOffset: shift(f) }, { positions: f.buffer('one position') });

/** Operations of both axes. */
const ofAxes = (list: (name: 'k' | 'v', axis: RowAxis) => Binds<PromptFrame>): Binds<PromptFrame> => ({
  ...list('k', 'key'),
  ...list('v', 'value'),
});
/** The same, and of the rotary branch. */
const ofCached = (list: (name: string, what: Cached) => Binds<PromptFrame>): Binds<PromptFrame> => ({
  ...ofAxes(list),
  ...list('branch', 'rotary-key'),
});

export const PREFILL: Binds<PromptFrame> = {
  attend,
  'attend-earlier': attendEarlier,
  'attend-cached': attendCached(true),
  'attend-sinks': attendCached(false),
  ...ofCached((name, what) => ({
    [`load-${name}`]: loadOwn(what),
    [`load-${name}-earlier`]: loadEarlier(what),
    [`load-${name}-held`]: loadHeld(what),
    [`stash-${name}-held`]: stashHeld(what),
    [`load-${name}-staying`]: loadStaying(what),
    [`append-${name}-staying`]: appendStaying(what),
  })),
  ...ofAxes((name, axis) => ({
    [`keep-${name}`]: keep(axis),
    [`keep-${name}-earlier`]: keep(axis, 'earlier'),
    [`keep-${name}-held`]: keep(axis, 'held'),
    [`keep-reconstructed-${name}`]: keep(axis),
    [`reconstruct-${name}`]: reconstruct(axis),
    [`reconstruct-${name}-earlier`]: reconstruct(axis, 'earlier latents'),
    [`reconstruct-${name}-held`]: reconstruct(axis),
    [`mean-${name}`]: addMean(axis),
    [`mean-${name}-earlier`]: addMean(axis),
    [`mean-${name}-held`]: addMean(axis),
    [`capture-${name}`]: capture(axis),
    [`hold-${name}`]: hold(axis),
  })),
  // Queries of a chunk, or its keys too, where they were projected.
  rope: (f, visit) => rotateHeads(f, visit, 'queries'),
  'rope-branch': (f, visit) => rotate(f, visit, f.inPacked('branch'), f.c.branch.width),
  'rope-back': (f, visit) =>
    rotate(f, visit, f.projected('key'), f.c.geometry.headDim, {}, { turns: f.buffer('inverse rotary table') }),
  'rope-k-earlier': rotateEarlier,
  'rope-k-held': (f, visit) => rotateHeads(f, visit, 'keys', f.before - f.held + fromOf(visit)),
  'rope-kept': rotatePinned,
  'rope-branch-earlier': (f, visit) => rotateShift(f, visit, earlierBranch(f), f.c.branch.width),
  // Queries, to their place inside the cache, and from there.
  'rope-inside': (f, visit) => rotateHeads(f, visit, 'queries', f.firstPosition(visit) - shift(f)),
  'rope-onward': (f, visit) => rotateShift(f, visit, f.inPacked('queries'), f.c.geometry.headDim),
  'load-mass-held': loadMass,
  'prompt-mass': mass,
  'prompt-evict': evict,
  'chunk-evict': evict,
};
