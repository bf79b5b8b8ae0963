/**
 * Execution of H2O in whole prompts: the mass that a run's tokens gather, and the choice and copy of those that stay.
 */
import type { Buffer } from '../../gpu/index.js';
import { runOf } from '../../../kernels/shared/evict.launch.js';
import { evictingRows } from '../../schedule/eviction-ops.js';
import type { Visit } from '../../schedule/expand.js';
import { beginsMass, massNumber } from '../../schedule/prefill.js';
import { plan, type Executor, type Executors } from './dense.js';
import { evictedRows } from './eviction.js';
import { placed } from './machine.js';
import { queriesOf } from './prefill-attend.js';
import type { Prompt } from './prompt.js';

/** Masses of the run's tokens, by their number. */
export function massOf(p: Prompt, visit: Visit): Buffer {
  const { block, layer } = placed(visit);
  return p.buffer(`run mass ${massNumber(p.c, block, layer)}`);
}

const mass: Executor<Prompt> = (p, visit) => {
  const { cache, capacity } = p.kept('key', visit);
  const at = queriesOf(p, visit);
  const branch = at.branch ? { branchQueries: p.projections, branchKeys: p.branchKeys(visit).rows } : {};
  return {
    plan: plan(p, visit, {
      massPrefill: { ...at, capacity, room: p.rows, begins: beginsMass(p.c, placed(visit)) },
    }),
    buffers: {
      queries: p.projections,
      keys: cache,
      statistics: p.buffer('statistics'),
      mass: massOf(p, visit),
      ...branch,
    },
  };
};

const evict: Executor<Prompt> = (p, visit) => {
  const place = placed(visit);
  const part = p.partOf(visit);
  const caches = evictedRows(p, place);
  const runs = caches.map(({ name }) => p.runRows(name, visit));
  const { capacity, pinned, ring, heavy } = p.caches.slots;
  const options = {
    capacity,
    pinned,
    ring,
    heavy,
    caches,
    firstRow: (p.sequence - part.first) * evictingRows(p.c, place.block),
    room: p.rows,
    runCapacity: runs[0]?.capacity as number,
  };
  const chunk = visit.op.kernel === 'evict_chunk';
  return {
    plan: plan(p, visit, chunk ? { evictChunk: { ...options, position: p.before } } : { evictPrefill: options }),
    buffers: {
      runMass: massOf(p, visit),
      mass: p.evictionBuffer('mass', place, part),
      positions: p.evictionBuffer('positions', place, part),
      // A step's scores, which has one a slot and query head.
      ...(chunk ? { sources: p.scores(part) } : {}),
      ...Object.fromEntries(
        caches.flatMap(({ name }, i) => [
          [runOf(name), runs[i]?.cache as Buffer],
          [name, p.caches.buffer(name, place, place.loop, part.index)],
        ]),
      ),
    },
  };
};

export const H2O_EXECUTORS: Executors<Prompt> = { 'prompt-mass': mass, 'prompt-evict': evict, 'chunk-evict': evict };
