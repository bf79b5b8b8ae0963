/** Execution of H2O: the mass of cached tokens, and the exchange of a pinned token for the one that leaves the ring. */
import type { EvictedCache } from '../../kernels/shared/evict.launch.js';
import { branchWidth, evictingRows, readsLatents } from '../../schedule/eviction-ops.js';
import { scoresOf } from './attention.js';
import { placed, plan, type Executor } from './dense.js';
import type { CacheRole } from './caches.js';
import { loopOf } from './latent.js';
import type { Machine } from './machine.js';
import type { Place } from '../../schedule/expand.js';

export const mass: Executor = (m, visit) => {
  const place = placed(visit);
  const part = m.partOf(visit);
  const planned = plan(m, visit, { mass: { capacity: m.caches.slots.capacity } });
  return Promise.resolve({
    plan: planned,
    buffers: {
      scores: scoresOf(m, part),
      stats: m.own('stats', part, 2 * m.c.geometry.heads),
      mass: m.evictionBuffer('mass', place, part),
    },
  });
};

/** Roles of the rows that are evicted together. */
export function rolesOf(m: Machine, place: Place): readonly CacheRole[] {
  if (!readsLatents(m.c, place.block)) return ['key', 'value'];
  return ['key-latent', 'value-latent', ...(branchWidth(m.c, place.block) > 0 ? ['rotary-key' as const] : [])];
}

export const evict: Executor = (m, visit) => {
  const place = placed(visit);
  const { capacity, pinned, ring } = m.caches.slots;
  const rows = evictingRows(m.c, place.block);
  const part = m.partOf(visit);
  const loop = loopOf(visit);
  const roles = rolesOf(m, place);
  const caches = roles.map((role): EvictedCache => {
    const { width, heads } = m.caches.tensor(role, place);
    return { name: role, width, rows: heads / rows };
  });
  return Promise.resolve({
    plan: plan(m, visit, { evict: { heads: rows, pinned, ring, capacity, caches } }),
    buffers: {
      spans: m.spans(part, visit),
      mass: m.evictionBuffer('mass', place, part, loop),
      positions: m.evictionBuffer('positions', place, part, loop),
      moves: m.buffer('moves'),
      ...Object.fromEntries(roles.map((role) => [role, m.caches.buffer(role, place, loop, part.index)])),
    },
  });
};
