/** What operations on H2O scores and positions bind in a prompt, and where attention's queries lie. */

import { runOf } from '../../../kernels/shared/cache/evict.terms.js';
import type { PrefillOptions } from '../../../kernels/attention-options.js';
import { slotOf } from '../cache-map.js';
import { branchWidth, evictingRows } from '../eviction-ops.js';
import type { Visit } from '../expand.js';
import { beginsMass, massNumber } from '../prefill/prefill.js';
import { evictedRows } from './attention.js';
import { type Bind } from './dense.js';
import { countOf, fromOf, type PromptFrame, type Rowset } from './prompt.js';
import { placed, type BufferRef, type Ref } from './refs.js';

type PromptBind = Bind<PromptFrame>;

/** Where attention's queries lie, with those of the rotary branch. */
export function queriesOf(f: PromptFrame, visit: Visit): Pick<PrefillOptions, 'queries' | 'branch'> {
  const { queries, branch } = f.packed;
  const { width } = f.c.branch;
  if (branchWidth(f.c, placed(visit).block) === 0) return { queries };
  return { queries, branch: { width, heads: f.branchHeads, queries: { ...branch, head: width } } };
}

/** The rotary branch's queries, and its keys. */
export const branchBinds = (f: PromptFrame, visit: Visit, keys = f.branchKeys(visit).rows): Record<string, Ref> =>
  branchWidth(f.c, placed(visit).block) === 0 ? {} : { branchQueries: f.projections, branchKeys: keys };

/** Slot of a token by its number among the rows of the run: pinned ones, then the ring's by position (H2O). */
export function slotHeld(f: PromptFrame, number: number): number {
  const { slots } = f.caches;
  return number < f.held - slots.ring ? number : slotOf(slots, f.before - f.held + number);
}

/** First evicting row of the prompt in the buffers of its part. */
const firstEvicting = (f: PromptFrame, visit: Visit): number =>
  (f.sequence - f.partOf(visit).first) * evictingRows(f.c, placed(visit).block);

export const rotatePinned: PromptBind = (f, visit) => {
  const { rows: data, at } = f.projected('key');
  const { kvHeads, headDim } = f.c.geometry;
  const ropeKept = {
    data: at,
    pooled: kvHeads / evictingRows(f.c, placed(visit).block),
    firstRow: firstEvicting(f, visit),
    first: fromOf(visit),
    capacity: f.caches.slots.capacity,
  };
  return {
    options: { ...f.rotary, ropeKept },
    binds: {
      positions: f.evicting('positions', placed(visit), f.partOf(visit)),
      turns: f.buffer(`rotary table ${headDim}`),
      data,
    },
  };
};

/** H2O scores of the run's tokens. */
const massOf = (f: PromptFrame, visit: Visit): BufferRef => {
  const { block, layer } = placed(visit);
  return f.buffer('run mass', massNumber(f.c, block, layer));
};

/** H2O scores lie as a cached row of one 32-bit component does; each evicting row is an operation. */
export const loadMass: PromptBind = (f, visit) => ({
  options: {
    load: {
      capacity: f.caches.slots.capacity,
      chunk: countOf(visit),
      first: slotHeld(f, fromOf(visit)),
      firstSequence: firstEvicting(f, visit) + visit.part,
      output: { offset: visit.part * f.setting.rows + fromOf(visit), stride: 1 },
    },
  },
  binds: { cache: f.evicting('mass', placed(visit), f.partOf(visit)), rows: massOf(f, visit) },
});

export const mass: PromptBind = (f, visit) => {
  const { cache, capacity } = f.kept('key', visit);
  const begins = beginsMass(f.c, placed(visit));
  return {
    options: { massPrefill: { ...queriesOf(f, visit), capacity, room: f.setting.rows, begins } },
    binds: {
      queries: f.projections,
      keys: cache,
      statistics: f.buffer('statistics'),
      mass: massOf(f, visit),
      ...branchBinds(f, visit),
    },
  };
};

/** The choice of the tokens that stay, and the copy of their rows. */
export const evict: PromptBind = (f, visit) => {
  const place = placed(visit);
  const part = f.partOf(visit);
  const caches = evictedRows(f, place);
  const runs = caches.map(({ name }) => f.runRows(name, visit));
  const { capacity, pinned, ring, heavy } = f.caches.slots;
  const options = {
    capacity,
    pinned,
    ring,
    heavy,
    caches,
    firstRow: firstEvicting(f, visit),
    room: f.setting.rows,
    runCapacity: runs[0]?.capacity as number,
  };
  const chunk = visit.op.kernel === 'evict_chunk';
  return {
    options: chunk ? { evictChunk: { ...options, position: f.before } } : { evictPrefill: options },
    binds: {
      runMass: massOf(f, visit),
      mass: f.evicting('mass', place, part),
      positions: f.evicting('positions', place, part),
      // A step's scores, which has one a slot and query head.
      ...(chunk ? { sources: f.scores(part) } : {}),
      ...Object.fromEntries(
        caches.flatMap(({ name }, i) => [
          [runOf(name), (runs[i] as Rowset).cache],
          [name, f.cacheOf(visit, name)],
        ]),
      ),
    },
  };
};
