/**
 * Operations that eviction adds to a layer: H2O's mass and its exchange of tokens. StreamingLLM overwrites its ring and
 * adds none.
 */
import { pathSpec } from '../codecs/paths.js';
import { codecSpec, isLatent } from '../codecs/registry.js';
import { keptTokens, pinnedSlots, weighsTokens } from '../eviction/policy.js';
import type { LayerBlock } from '../geometry/geometry.js';
import {
  branchHeadsOf,
  everyRestoredLoop,
  groupSizeOf,
  headsOf,
  kvHeadsOf,
  latentsOf,
  op,
  storageOf,
  type Configuration,
  type Op,
  type Part,
  type When,
} from './configuration.js';

/** True where attention of a block reads latents, or K and V rebuilt from them: every latent path but `fast`. */
export const readsLatents = (c: Configuration, block: LayerBlock): boolean =>
  block.name === 'core' && isLatent(c.codec) && pathSpec(c.path).latents === true;

/** Last tokens of which attention of a block reads exact rows beside its latents; 0 without such a window. */
export const windowOf = (c: Configuration, block: LayerBlock): number =>
  readsLatents(c, block) ? (c.codec.windowTokens ?? 0) : 0;

/** Width of the rotary branch that the block caches, 0 without. */
export const branchWidth = (c: Configuration, block: LayerBlock): number =>
  block.name === 'core' && pathSpec(c.path).branch ? c.branch.width : 0;

/**
 * Rows of one layer, loop and sequence (on one GPU) that evict on their own: one a KV head, or 1 where all heads share
 * a latent or a rotary key, because a shared row can only be evicted for all of them.
 */
export function evictingRows(c: Configuration, block: LayerBlock): number {
  if (!readsLatents(c, block)) return kvHeadsOf(c);
  return branchWidth(c, block) > 0 && !c.branch.perHead ? 1 : latentsOf(c);
}

/**
 * When a layer's cache of the step is complete and read for the last time: then it is appended to, and evicted from.
 */
export const closingTime = (c: Configuration, block: LayerBlock): When =>
  block.name === 'core' ? codecSpec(c.codec).closes : 'always';

/**
 * When the rotary branch's key of a token is made: once for the loops that share its latent, from its state in the
 * first.
 */
export const branchKeyTime = (c: Configuration): When => (codecSpec(c.codec).loopAxis ? 'first-loop' : 'always');

/** Sequences whose caches are bound together, and how often. */
export type Parts = readonly Part[];

/** Adds this step's attention to the mass of the cached tokens, in every layer and loop. */
export function massOps(c: Configuration, block: LayerBlock, parts: Parts, context: number): Op[] {
  if (!weighsTokens(c.eviction)) return [];
  const rows = evictingRows(c, block);
  const each = { group: headsOf(c) / rows, context: keptTokens(c.eviction, context) };
  return parts.map(({ size, repeat }) => op('mass', 'mass', 'f32', { rows: size * rows, ...each }, 'always', repeat));
}

/** Scalars of a token in all rows of a layer and loop that evict in a step. */
export function evictedScalars(c: Configuration, block: LayerBlock): number {
  const { rankK = 0, rankV = 0 } = c.codec;
  return readsLatents(c, block)
    ? (rankK + rankV) * latentsOf(c) + branchWidth(c, block) * branchHeadsOf(c)
    : 2 * kvHeadsOf(c) * c.geometry.headDim;
}

/**
 * Exchanges the token that leaves the ring for the lightest pinned one, once for every row set, before its slot is
 * written again.
 * @param slots tokens that each cached row has room for
 */
export function evictOps(c: Configuration, block: LayerBlock, parts: Parts, slots: number): Op[] {
  if (!weighsTokens(c.eviction)) return [];
  const heavy = Math.min(c.eviction.heavyTokens, pinnedSlots(c.eviction, slots));
  // Where no older token is ever kept, or the cache holds all there can be, the ring alone decides.
  if (heavy === 0) return [];
  const rows = evictingRows(c, block);
  const when = closingTime(c, block);
  const each = {
    context: heavy,
    width: evictedScalars(c, block) / rows,
    groupSize: groupSizeOf(c),
  };
  const ops = parts.map(({ size, repeat }) =>
    op('evict', 'evict', storageOf(c), { rows: size * rows, ...each }, when, repeat),
  );
  // The full-width rows of `fast` are a set of their own in every loop, and are all written in the last one.
  return block.name === 'core' && pathSpec(c.path).restores ? everyRestoredLoop(c, ops) : ops;
}
