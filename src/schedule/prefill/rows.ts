/**
 * The operations on rows that all kinds of prefill use: encoding, reconstructing, keeping, writing to the cache and
 * reading back. Positions are those of the run's tokens; buffers have rows of the run alone.
 */
import { pathSpec } from '../../codecs/paths.js';
import { countOf, fromOf, into, type PromptFrame, type Rowset } from '../bind/prompt.js';
import { codecPlace, loopOf, placed, type Bound, type CacheRole, type Placed, type WeightRef } from '../bind/refs.js';
import { slotOf } from '../cache-map.js';
import {
  AXES,
  branchHeadsOf,
  groupSizeOf,
  kvHeadsOf,
  latentsOf,
  NAME,
  rankOf,
  storageOf,
  type Axis,
  type Configuration,
  type Visit,
  type When,
} from '../configuration.js';
import { SAME_ROW } from '../dense.js';
import { branchKeyTime, branchWidth, closingTime, readsLatents, windowOf } from '../facts.js';
import { everyRestoredLoop, op, perHead, type Bind, type Op } from '../op.js';
import {
  append,
  appendBranch,
  APPEND_LATENTS,
  appendOp,
  APPEND_RECENT,
  APPEND_RESTORED,
  restoreOps,
  ropeRestored,
} from '../rows.js';
import { keptRowType, readsReconstructions, type Chunk, type Pass } from './pass.js';

/** Rows that a layer caches: keys or values, of full width or latents, and those of a rotary branch. */
export type Cached = Axis | 'rotary-key';
/** The chunk's rows, those of a piece of tokens before the run, or of the cached prefix under H2O. */
export type Whose = 'own' | 'earlier' | 'held';
const named = (label: string, whose: Whose): string => (whose === 'own' ? label : `${label}-${whose}`);

/** Heads and width of the rows that a layer caches. */
export function cachedShape(c: Configuration, block: Pass['block'], what: Cached): { heads: number; width: number } {
  if (what === 'rotary-key') return { heads: branchHeadsOf(c), width: branchWidth(c, block) };
  return readsLatents(c, block)
    ? { heads: latentsOf(c), width: rankOf(c, what) }
    : { heads: kvHeadsOf(c), width: c.geometry.headDim };
}
export const roleOf = (c: Configuration, block: Pass['block'], what: Cached): CacheRole =>
  what !== 'rotary-key' && readsLatents(c, block) ? `${what}-latent` : what;

/** Keeps rows of full width as attention reads them, apart. Rebuilt rows of earlier tokens overwrite the run's own. */
export function keepOp(
  { c, captures }: Pick<Pass, 'c' | 'captures'>,
  axis: Axis,
  rows: number,
  when: When = 'always',
  whose: Whose = 'own',
  label = named(`keep-${NAME[axis]}`, whose),
): Op {
  const binds: Bind = (f: PromptFrame, visit: Visit) => {
    const own = f.kept(axis, visit);
    const to = whose === 'earlier' ? into(visit, own, 0) : into(visit, whose === 'held' ? { ...own, first: 0 } : own);
    return append(f, to, f.projected(axis));
  };
  return op(label, 'append', keptRowType(c, captures), keptShape(c, rows), binds, when);
}
const keptShape = (c: Configuration, rows: number) => ({
  rows,
  heads: kvHeadsOf(c),
  width: c.geometry.headDim,
  groupSize: 0,
});

/** Cached rows from a slot on, as floats. */
export const load = (
  visit: Visit,
  { cache, capacity, firstSequence }: Rowset,
  slot: number,
  { rows, at }: Placed,
): Bound => ({
  options: { load: { capacity, chunk: countOf(visit), first: slot, firstSequence, output: at } },
  binds: { cache, rows },
});

export const loadKept = (
  { c, captures }: Pick<Pass, 'c' | 'captures'>,
  label: string,
  rows: number,
  binds: Bind,
  when?: When,
): Op => op(label, 'load', keptRowType(c, captures), keptShape(c, rows), binds, when);

/** Slot of a token before the run. A piece of them has neighbouring slots. */
export const slotBefore = (f: PromptFrame, visit: Visit): number => slotOf(f.caches.slots, fromOf(visit));
/** Slot of a token by its number among the rows of the run: pinned ones, then the ring's by position (H2O). */
export function slotHeld(f: PromptFrame, number: number): number {
  const { slots } = f.caches;
  return number < f.held - slots.ring ? number : slotOf(slots, f.run.from - f.held + number);
}

export const earlierBranch = (f: PromptFrame): Placed => ({
  rows: f.buffer('earlier branch keys'),
  at: { offset: 0, stride: branchHeadsOf(f.c) * f.c.branch.width },
});

/** Where rows read from the cache go: latents to attention's output, full-width rows over the chunk's own. */
export function loadedTo(f: PromptFrame, visit: Visit, what: Cached, whose: Whose = 'own'): Placed {
  if (what === 'rotary-key')
    return whose === 'earlier' ? earlierBranch(f) : f.branchKeys(visit, whose === 'held' ? fromOf(visit) : undefined);
  if (whose === 'earlier') return { ...f.chunkLatents(what), rows: f.buffer('earlier latents') };
  return readsLatents(f.c, placed(visit).block) ? f.chunkLatents(what) : f.projected(what);
}

/** Reading rows back from the cache, in one loop. */
export function loadOp(
  { c, block }: Pick<Pass, 'c' | 'block'>,
  what: Cached,
  rows: number,
  when: When = 'always',
  whose: Whose = 'own',
): Op {
  const role = roleOf(c, block, what);
  const binds: Bind = (f: PromptFrame, visit: Visit) => {
    const from = whose === 'own' ? f.ownRows(role, visit, loopOf(visit)) : f.inCache(role, visit);
    const slot = {
      own: () => from.first + fromOf(visit),
      earlier: () => slotBefore(f, visit),
      held: () => slotHeld(f, fromOf(visit)),
    }[whose]();
    return load(visit, from, slot, loadedTo(f, visit, what, whose));
  };
  const shape = { rows, ...cachedShape(c, block, what), groupSize: groupSizeOf(c) };
  return op(named(`load-${NAME[what]}`, whose), 'load', storageOf(c), shape, binds, when);
}

/** Rows of one loop from latents that were read back, over the chunk's own keys or values, and their mean. */
export function reconstructOps(c: Configuration, axis: Axis, rows: number, whose: Whose = 'own'): Op[] {
  const { headDim } = c.geometry;
  // The matrices that decoding has: by row for keys, which it rebuilds or absorbs, by column for values that follow
  // the sum.
  const byRow = axis === 'key' || c.materialised;
  const product: Bind = (f: PromptFrame, visit: Visit) => {
    const { rows, at } = f.projected(axis);
    const weights: WeightRef = { weights: byRow ? 'up-rows' : 'up-columns', ...codecPlace(visit), axis };
    const x = { row: f.latentRow(axis), group: latentsOf(c) === 1 ? 0 : rankOf(c, axis) };
    const y = { offset: at.offset, row: at.stride, group: headDim };
    return {
      options: { matmul: { x, y, transposed: byRow } },
      binds: { x: f.buffer(whose === 'earlier' ? 'earlier latents' : 'results'), weights, y: rows },
    };
  };
  const mean: Bind = (f, visit) => {
    const { rows, at } = f.projected(axis);
    const input: WeightRef = { weights: 'mean', ...codecPlace(visit), axis };
    return { options: { placement: { input: SAME_ROW, output: at } }, binds: { input, target: rows } };
  };
  const label = (what: string): string => named(`${what}-${NAME[axis]}`, whose);
  return [
    perHead(label('reconstruct'), kvHeadsOf(c), rows, rankOf(c, axis), headDim, product),
    op(label('mean'), 'rmsnorm', 'add', { rows, width: kvHeadsOf(c) * headDim }, mean),
  ];
}

/** Rows of the cache as attention reads them: latents reconstructed in one loop. @param branchTime of branch keys */
export function readBackOps(p: Pass, rows: number, branchTime: When = branchKeyTime(p.c), whose: Whose = 'own'): Op[] {
  const { c, block } = p;
  const branchKeys = branchWidth(c, block) > 0 ? [loadOp(p, 'rotary-key', rows, branchTime, whose)] : [];
  if (readsReconstructions(p)) return branchKeys;
  const loaded = (axis: Axis): Op => loadOp(p, axis, rows, 'always', whose);
  if (!readsLatents(c, block)) return AXES.map(loaded);
  return [...AXES.flatMap((axis) => [loaded(axis), ...reconstructOps(c, axis, rows, whose)]), ...branchKeys];
}

/** Writing of latents that are complete, or of the rows of all their loops on the fast path. */
export function writeLatentOps({ c, block }: Pass, axis: Axis, rows: number): Op[] {
  const when = closingTime(c, block);
  const written = (heads: number, width: number, binds: Bind): Op =>
    appendOp(c, `append-${NAME[axis]}`, rows, heads, width, binds, when);
  if (!pathSpec(c.path).restores) return [written(latentsOf(c), rankOf(c, axis), APPEND_LATENTS[axis])];
  return [
    ...restoreOps(c, axis, rows, when),
    ...(axis === 'key' ? [ropeRestored(c, rows, when)] : []),
    ...everyRestoredLoop(c, [written(kvHeadsOf(c), c.geometry.headDim, APPEND_RESTORED[axis])]),
  ];
}

export function writeBranchOps({ c, block }: Pass, rows: number): Op[] {
  const branch = branchWidth(c, block);
  if (branch === 0) return [];
  return [appendOp(c, 'append-branch', rows, branchHeadsOf(c), branch, appendBranch, closingTime(c, block))];
}

/** Writing of the exact rows of a run's last tokens, which steps read beside latents or streams; pass 1 has them. */
export function recentOps({ c, block, run, pass2, streams }: Pass, chunk: Chunk): Op[] {
  const window = streams ? run.tokens - streams.packed : windowOf(c, block);
  const from = Math.max(chunk.from, run.tokens - window);
  const tokens = chunk.from + chunk.tokens - from;
  if (pass2 || tokens <= 0 || window === 0) return [];
  const { headDim } = c.geometry;
  return AXES.map((axis) => {
    const label = `append-recent-${NAME[axis]}`;
    return { ...appendOp(c, label, tokens, kvHeadsOf(c), headDim, APPEND_RECENT[axis], 'always'), from };
  });
}
