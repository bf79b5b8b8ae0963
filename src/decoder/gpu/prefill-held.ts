/**
 * H2O in chunks: rows and masses of the tokens that the cache holds are loaded before those of a chunk
 * (schedule/prefill-held.ts).
 */
import { evictingRows } from '../../schedule/eviction-ops.js';
import type { Visit } from '../../schedule/expand.js';
import type { CodecAxis } from '../tensors.js';
import { slotOf, type CacheRole } from './caches.js';
import { plan, type Executor, type Executors } from './dense.js';
import { placed, type Placed } from './machine.js';
import { massOf } from './prefill-h2o.js';
import { addMean, load, loaded, reconstruct, roleOf } from './prefill-rows.js';
import { countOf, fromOf, into, type Prompt } from './prompt.js';
import { append, rotary, rotate } from './rows.js';

/** Slot of a token by its number among the rows of the run: pinned ones, then the ring's by position. */
function slotHeld(p: Prompt, number: number): number {
  const { slots } = p.caches;
  return number < p.held - slots.ring ? number : slotOf(slots, p.before - p.held + number);
}

/** Role of rows that are read from the cache, and where they go: branch keys lie before those of the run. */
function heldRows(p: Prompt, what: CodecAxis | 'rotary-key', visit: Visit): { role: CacheRole; to: Placed } {
  if (what === 'rotary-key') return { role: what, to: p.branchKeys(visit, fromOf(visit)) };
  return { role: roleOf(p, visit, what), to: loaded(p, visit, what) };
}

const read =
  (what: CodecAxis | 'rotary-key'): Executor<Prompt> =>
  (p, visit) => {
    const { role, to } = heldRows(p, what, visit);
    return load(p, visit, p.inCache(role, visit), slotHeld(p, fromOf(visit)), to);
  };

/** After the rows of earlier pieces, where the run's are stored beside the cache. */
const stash =
  (what: CodecAxis | 'rotary-key'): Executor<Prompt> =>
  (p, visit) => {
    const { role, to } = heldRows(p, what, visit);
    return append(p, visit, into(visit, { ...p.ownRows(role, visit), first: 0 }), to);
  };

/** The same, in the form that attention reads. */
const keepHeld =
  (axis: CodecAxis): Executor<Prompt> =>
  (p, visit) =>
    append(p, visit, into(visit, { ...p.kept(axis, visit), first: 0 }), p.projected(axis));

const rotateRing: Executor<Prompt> = (p, visit) => {
  const positionOffset = p.before - p.held + fromOf(visit);
  return rotate(p, visit, p.projected('key'), p.c.geometry.headDim, { positionOffset });
};

/** Evicting rows of a sequence, and the first of the prompt's in the buffers of its part. */
function evicting(p: Prompt, visit: Visit): { rows: number; firstRow: number } {
  const rows = evictingRows(p.c, placed(visit).block);
  return { rows, firstRow: (p.sequence - p.partOf(visit).first) * rows };
}

const rotatePinned: Executor<Prompt> = (p, visit) => {
  const { rows, firstRow } = evicting(p, visit);
  const { rows: data, at } = p.projected('key');
  const ropeKept = {
    data: at,
    pooled: p.c.geometry.kvHeads / rows,
    firstRow,
    first: fromOf(visit),
    capacity: p.caches.slots.capacity,
  };
  return {
    plan: plan(p, visit, { ...rotary(p), ropeKept }),
    buffers: {
      positions: p.evictionBuffer('positions', placed(visit), p.partOf(visit)),
      turns: p.turns(p.c.geometry.headDim),
      data,
    },
  };
};

/** A row of masses has the layout of a cached row of one component in 32 bits; each is an operation. */
const loadMass: Executor<Prompt> = (p, visit) => {
  const options = {
    capacity: p.caches.slots.capacity,
    chunk: countOf(visit),
    first: slotHeld(p, fromOf(visit)),
    firstSequence: evicting(p, visit).firstRow + visit.part,
    output: { offset: visit.part * p.rows + fromOf(visit), stride: 1 },
  };
  return {
    plan: plan(p, visit, { load: options }),
    buffers: { cache: p.evictionBuffer('mass', placed(visit), p.partOf(visit)), rows: massOf(p, visit) },
  };
};

export const HELD_EXECUTORS: Executors<Prompt> = {
  'load-mass-held': loadMass,
  'load-k-held': read('key'),
  'load-v-held': read('value'),
  'load-branch-held': read('rotary-key'),
  'stash-k-held': stash('key'),
  'stash-v-held': stash('value'),
  'stash-branch-held': stash('rotary-key'),
  'reconstruct-k-held': reconstruct('key'),
  'reconstruct-v-held': reconstruct('value'),
  'mean-k-held': addMean('key'),
  'mean-v-held': addMean('value'),
  'rope-k-held': rotateRing,
  'rope-kept': rotatePinned,
  'keep-k-held': keepHeld('key'),
  'keep-v-held': keepHeld('value'),
};
