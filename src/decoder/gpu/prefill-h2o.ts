/**
 * Execution of H2O in whole prompts: the mass that a run's tokens gather, and the choice and copy of those that stay.
 */
import type { EvictedCache } from '../../kernels/shared/evict.launch.js';
import { runOf } from '../../kernels/shared/evict.launch.js';
import { evictingRows } from '../../schedule/eviction-ops.js';
import { beginsMass, massNumber } from '../../schedule/prefill.js';
import type { Buffer } from '../../gpu/index.js';
import { scoresOf } from './attention.js';
import { placed, plan } from './dense.js';
import { rolesOf } from './eviction.js';
import { branchKeyOf, kept, queriesOf, runRows, type Executor } from './prefill-rows.js';
import { massLabel, type Prompt } from './prompt.js';
import type { Place } from '../../schedule/expand.js';

export const massOf = (p: Prompt, { block, layer }: Place): Buffer =>
  p.buffer(massLabel(massNumber(p.m.c, block, layer)));

const mass: Executor = (p, visit) => {
  const { m } = p;
  const place = placed(visit);
  const { cache, capacity } = kept(p, 'key', visit);
  const at = queriesOf(p, place);
  const planned = plan(m, visit, { massPrefill: { ...at, capacity, room: p.rows, begins: beginsMass(m.c, place) } });
  const branch = at.branch ? { branchQueries: p.projections, branchKeys: branchKeyOf(p, place) } : {};
  return Promise.resolve({
    plan: planned,
    buffers: {
      queries: p.projections,
      keys: cache,
      statistics: p.buffer('statistics'),
      mass: massOf(p, place),
      ...branch,
    },
  });
};

const evict: Executor = (p, visit) => {
  const { m } = p;
  const place = placed(visit);
  const rows = evictingRows(m.c, place.block);
  const part = m.caches.partOf(place.block.name, p.sequence);
  const roles = rolesOf(m, place);
  const of = roles.map((role) => ({ role, rowset: runRows(p, role, visit) }));
  const caches = roles.map((name): EvictedCache => {
    const { width, heads } = m.caches.tensor(name, place);
    return { name, width, rows: heads / rows };
  });
  const { capacity, pinned, ring, heavy } = m.caches.slots;
  const options = {
    capacity,
    pinned,
    ring,
    heavy,
    caches,
    firstRow: (p.sequence - part.first) * rows,
    room: p.rows,
    runCapacity: of[0]?.rowset.capacity as number,
  };
  const choice =
    visit.op.kernel === 'evict_chunk' ? { evictChunk: { ...options, position: p.before } } : { evictPrefill: options };
  return Promise.resolve({
    plan: plan(m, visit, choice),
    buffers: {
      runMass: massOf(p, place),
      mass: m.evictionBuffer('mass', place, part),
      positions: m.evictionBuffer('positions', place, part),
      // A step's scores, which has one a slot and query head.
      ...(visit.op.kernel === 'evict_chunk' ? { sources: scoresOf(m, part) } : {}),
      ...Object.fromEntries(
        of.flatMap(({ role, rowset }) => [
          [runOf(role), rowset.cache],
          [role, m.caches.buffer(role, place, place.loop, part.index)],
        ]),
      ),
    },
  });
};

/** By label of the operation. */
export const H2O_EXECUTORS: Readonly<Record<string, Executor>> = {
  'prompt-mass': mass,
  'prompt-evict': evict,
  'chunk-evict': evict,
};
