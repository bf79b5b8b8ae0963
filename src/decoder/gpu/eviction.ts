/** Execution of H2O: the mass of cached tokens, and the exchange of a pinned token for the one that leaves the ring. */
import type { EvictedCache } from '../../../kernels/options.js';
import { branchWidth, evictingRows, readsLatents } from '../../schedule/eviction-ops.js';
import { plan, type Executor } from './dense.js';
import type { CacheRole } from './caches.js';
import { loopOf, placed, type Machine } from './machine.js';
import type { DecodeStep } from './step.js';
import type { Place } from '../../schedule/expand.js';

export const mass: Executor<DecodeStep> = (m, visit) => {
  const place = placed(visit);
  const part = m.partOf(visit);
  const planned = plan(m, visit, { mass: { capacity: m.caches.slots.capacity } });
  return {
    plan: planned,
    buffers: {
      scores: m.scores(part),
      stats: m.own('stats', part, 2 * m.c.geometry.heads),
      mass: m.evictionBuffer('mass', place, part),
    },
  };
};

/** The rows that are evicted together. */
export function evictedRows(m: Machine, place: Place): (EvictedCache & { name: CacheRole })[] {
  const { block } = place;
  const branch = branchWidth(m.c, block) > 0 ? (['rotary-key'] as const) : [];
  const roles = readsLatents(m.c, block)
    ? (['key-latent', 'value-latent', ...branch] as const)
    : (['key', 'value'] as const);
  return roles.map((name) => {
    const { width, heads } = m.caches.tensor(name, place);
    return { name, width, rows: heads / evictingRows(m.c, block) };
  });
}

export const evict: Executor<DecodeStep> = (m, visit) => {
  const place = placed(visit);
  const { capacity, pinned, ring } = m.caches.slots;
  const part = m.partOf(visit);
  const loop = loopOf(visit);
  const caches = evictedRows(m, place);
  return {
    plan: plan(m, visit, { evict: { heads: evictingRows(m.c, place.block), pinned, ring, capacity, caches } }),
    buffers: {
      spans: m.spans(part, visit),
      mass: m.evictionBuffer('mass', place, part, loop),
      positions: m.evictionBuffer('positions', place, part, loop),
      moves: m.buffer('moves'),
      ...Object.fromEntries(caches.map(({ name }) => [name, m.caches.buffer(name, place, loop, part.index)])),
    },
  };
};
