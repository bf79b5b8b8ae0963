/** What eviction adds to a layer: H2O's mass and exchange of tokens. StreamingLLM overwrites its ring. */
import { pathSpec } from '../codecs/paths.js';
import { keptTokens, pinnedSlots, weighsTokens } from '../eviction/policy.js';
import type { EvictedCache } from '../../kernels/cache-options.js';
import type { Layer } from './attend.js';
import type { Frame } from './bind/frame.js';
import { loopOf, placed, type CacheRole } from './bind/refs.js';
import type { StepFrame } from './bind/step.js';
import { groupSizeOf, storageOf, type Place, type Visit } from './configuration.js';
import { branchWidth, closingTime, evictedScalars, evictingRows, readsLatents } from './facts.js';
import { everyRestoredLoop, inEachPart, op, type Bind, type Op } from './op.js';

/** Adds this step's attention to the mass of the cached tokens, in every layer and loop. */
export function massOps({ c, block, parts, context, heads }: Layer): Op[] {
  if (!weighsTokens(c.eviction)) return [];
  const rows = evictingRows(c, block);
  const each = { group: heads / rows, context: keptTokens(c.eviction, context) };
  const binds: Bind = (f, visit) => ({
    options: { mass: { capacity: f.caches.slots.capacity } },
    binds: {
      scores: f.scores(visit),
      stats: f.own('stats', visit, 2 * heads),
      mass: f.evicting('mass', visit),
    },
  });
  return inEachPart(parts, (size) => [op('mass', 'mass', 'f32', { rows: size * rows, ...each }, binds)]);
}

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

/** Exchanges the token that leaves the ring for the lightest pinned one. @param slots of each cached row */
export function evictOps({ c, block, parts, reads }: Layer, slots: number): Op[] {
  if (!weighsTokens(c.eviction)) return [];
  const heavy = Math.min(c.eviction.heavyTokens, pinnedSlots(c.eviction, slots));
  // Where no older token is ever kept, or the cache holds all there can be, the ring alone decides.
  if (heavy === 0) return [];
  const rows = evictingRows(c, block);
  const binds: Bind = (f: StepFrame, visit: Visit) => {
    const loop = loopOf(visit);
    const { capacity, pinned, ring } = f.caches.slots;
    const caches = evictedRows(f, placed(visit));
    return {
      options: { evict: { heads: rows, pinned, ring, capacity, caches } },
      binds: {
        spans: f.spans(visit, reads),
        mass: f.evicting('mass', visit, loop),
        positions: f.evicting('positions', visit, loop),
        moves: f.buffer('moves'),
        ...Object.fromEntries(caches.map(({ name }) => [name, f.cacheOf(visit, name, loop)])),
      },
    };
  };
  const when = closingTime(c, block);
  const each = { context: heavy, width: evictedScalars(c, block) / rows, groupSize: groupSizeOf(c) };
  const ops = inEachPart(parts, (size) => [
    op('evict', 'evict', storageOf(c), { rows: size * rows, ...each }, binds, when),
  ]);
  // The full-width rows of `fast` are a set of their own in every loop, and are all written in the last one.
  return block.name === 'core' && pathSpec(c.path).restores ? everyRestoredLoop(c, ops) : ops;
}
