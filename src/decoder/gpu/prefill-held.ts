/**
 * H2O in chunks: rows and masses of the tokens that the cache holds are loaded before those of a chunk
 * (schedule/prefill-held.ts).
 */
import { evictingRows, readsLatents } from '../../schedule/eviction-ops.js';
import type { CodecAxis } from '../tensors.js';
import { rotary } from './attention.js';
import { slotOf, type CacheRole } from './caches.js';
import { placed, plan } from './dense.js';
import type { Vectors } from './machine.js';
import {
  addMean,
  append,
  branchKeyOf,
  branchRows,
  fromOf,
  headTurns,
  inCache,
  kept,
  latentRow,
  load,
  ownRows,
  reconstruct,
  rotation,
  rowsOf,
  type Executor,
} from './prefill-rows.js';
import { massOf } from './prefill-h2o.js';
import type { Prompt } from './prompt.js';
import type { Buffer } from '../../gpu/index.js';
import type { Place, Visit } from '../../schedule/expand.js';

/** Slot of a token by its number among the rows of the run: pinned ones, then the ring's by position. */
function slotHeld(p: Prompt, number: number): number {
  const { slots } = p.m.caches;
  return number < p.held - slots.ring ? number : slotOf(slots, p.before - p.held + number);
}

interface Held {
  readonly role: CacheRole;
  readonly rows: Buffer;
  readonly at: Vectors;
}

/**
 * Destination of rows that are read from the cache: rows of full width and branch keys go where the run has its own,
 * latents where attention's output will be.
 */
function heldRows(p: Prompt, what: CodecAxis | 'rotary-key', visit: Visit): Held {
  const place = placed(visit);
  if (what === 'rotary-key') return { role: what, rows: branchKeyOf(p, place), at: branchRows(p, visit, 0) };
  if (readsLatents(p.m.c, place.block)) return { role: `${what}-latent`, rows: p.results, at: latentRow(p, what) };
  return { role: what, rows: p.projections, at: p.m.packed[`${what}s`] };
}

const read =
  (what: CodecAxis | 'rotary-key'): Executor =>
  (p, visit) => {
    const { role, rows, at } = heldRows(p, what, visit);
    const from = inCache(p, role, placed(visit));
    return Promise.resolve(load(p, visit, from, slotHeld(p, fromOf(visit)), { rows, at }));
  };

/** After the rows of earlier pieces, where the run's are stored beside the cache. */
const stash =
  (what: CodecAxis | 'rotary-key'): Executor =>
  (p, visit) => {
    const { role, rows, at } = heldRows(p, what, visit);
    return Promise.resolve(append(p, visit, { ...ownRows(p, role, placed(visit)), first: 0 }, { rows, at }));
  };

/** The same, in the form that attention reads. */
const keepHeld =
  (side: CodecAxis): Executor =>
  (p, visit) =>
    Promise.resolve(
      append(p, visit, { ...kept(p, side, visit), first: 0 }, { rows: p.projections, at: p.m.packed[`${side}s`] }),
    );

const rotateRing: Executor = (p, visit) =>
  Promise.resolve(rotation(p, visit, p.before - p.held + fromOf(visit), headTurns(p), p.m.packed.keys, p.projections));

/** Evicting rows of the prompt's sequence in the buffers of its part. */
function evicting(p: Prompt, { block }: Place) {
  const part = p.m.caches.partOf(block.name, p.sequence);
  const rows = evictingRows(p.m.c, block);
  return { part, rows, firstRow: (p.sequence - part.first) * rows };
}

const rotatePinned: Executor = (p, visit) => {
  const { m } = p;
  const place = placed(visit);
  const { part, rows, firstRow } = evicting(p, place);
  const planned = plan(m, visit, {
    ...rotary(m),
    ropeKept: {
      data: m.packed.keys,
      pooled: m.c.geometry.kvHeads / rows,
      firstRow,
      first: fromOf(visit),
      capacity: m.caches.slots.capacity,
    },
  });
  return Promise.resolve({
    plan: planned,
    buffers: { positions: m.evictionBuffer('positions', place, part), turns: headTurns(p), data: p.projections },
  });
};

/** A row of masses has the layout of a cached row of one component in 32 bits; each is an operation. */
const loadMass: Executor = (p, visit) => {
  const { m } = p;
  const place = placed(visit);
  const { part, firstRow } = evicting(p, place);
  const options = {
    capacity: m.caches.slots.capacity,
    chunk: rowsOf(visit),
    first: slotHeld(p, fromOf(visit)),
    firstSequence: firstRow + visit.part,
    output: { offset: visit.part * p.rows + fromOf(visit), stride: 1 },
  };
  return Promise.resolve({
    plan: plan(m, visit, { load: options }),
    buffers: { cache: m.evictionBuffer('mass', place, part), rows: massOf(p, place) },
  });
};

/** By label of the operation. */
export const HELD_EXECUTORS: Readonly<Record<string, Executor>> = {
  'load-mass-held': loadMass,
  'load-k-held': read('key'),
  'load-v-held': read('value'),
  'load-branch-held': read('rotary-key'),
  'stash-k-held': stash('key'),
  'stash-v-held': stash('value'),
  'stash-branch-held': stash('rotary-key'),
  'reconstruct-k-held': reconstruct('key', (p) => p.results),
  'reconstruct-v-held': reconstruct('value', (p) => p.results),
  'mean-k-held': addMean('key'),
  'mean-v-held': addMean('value'),
  'rope-k-held': rotateRing,
  'rope-kept': rotatePinned,
  'keep-k-held': keepHeld('key'),
  'keep-v-held': keepHeld('value'),
};
