/**
 * H2O in chunks: rows and masses of the tokens that the cache holds, brought before those of a chunk
 * (schedule/prefill-held.ts).
 */
import { evictingRows, readsLatents } from '../../schedule/eviction-ops.js';
import type { CodecAxis } from '../tensors.js';
import { rotary } from './attention.js';
import { slotRuns, type CacheRole } from './caches.js';
import { placed, plan } from './dense.js';
import type { Dispatch, Vectors } from './machine.js';
import {
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
import type { Place, Visit } from './walk.js';

/**
 * Runs of neighbouring slots in which tokens lie, by their number among the rows of the run: pinned ones, then the
 * ring's by position.
 */
function heldRuns(p: Prompt, from: number, tokens: number): { slot: number; before: number; tokens: number }[] {
  const { slots } = p.m.caches;
  const pinned = Math.max(0, p.held - slots.ring);
  if (from >= pinned) return slotRuns(slots, p.before - p.held + from, tokens);
  const own = Math.min(tokens, pinned - from);
  return [
    { slot: from, before: 0, tokens: own },
    ...(own < tokens ? heldRuns(p, pinned, tokens - own).map((run) => ({ ...run, before: run.before + own })) : []),
  ];
}

interface Held {
  readonly role: CacheRole;
  readonly rows: Buffer;
  readonly at: Vectors;
}

/**
 * Where rows go that are read from the cache: of full width and branch keys where the run has its own, latents where
 * attention's output will be.
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
    return Promise.resolve(
      heldRuns(p, fromOf(visit), rowsOf(visit)).map(({ slot, before, tokens }) =>
        load(p, visit, from, slot, { rows, at: { ...at, offset: at.offset + before * at.stride } }, tokens),
      ),
    );
  };

/** Behind the rows of the pieces before, where the run's are stored beside the cache. */
const stash =
  (what: CodecAxis | 'rotary-key'): Executor =>
  (p, visit) => {
    const { role, rows, at } = heldRows(p, what, visit);
    return Promise.resolve([append(p, visit, { ...ownRows(p, role, placed(visit)), first: 0 }, { rows, at })]);
  };

/** The same, as attention reads them. */
const keepHeld =
  (side: CodecAxis): Executor =>
  (p, visit) =>
    Promise.resolve([
      append(p, visit, { ...kept(p, side, visit), first: 0 }, { rows: p.projections, at: p.m.packed[`${side}s`] }),
    ]);

const rotateRing: Executor = (p, visit) =>
  Promise.resolve([
    rotation(p, visit, p.before - p.held + fromOf(visit), headTurns(p), p.m.packed.keys, p.projections),
  ]);

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
  const planned = plan(m, visit.op, {
    ...rotary(m),
    ropeKept: {
      data: m.packed.keys,
      pooled: m.c.geometry.kvHeads / rows,
      firstRow,
      first: fromOf(visit),
      capacity: m.caches.slots.capacity,
    },
  });
  return Promise.resolve([
    {
      plan: planned,
      buffers: { positions: m.evictionBuffer('positions', place, part), turns: headTurns(p), data: p.projections },
    },
  ]);
};

/** A row of masses has the layout of a cached row of one component in 32 bits. */
const loadMass: Executor = (p, visit) => {
  const { m } = p;
  const place = placed(visit);
  const { part, rows, firstRow } = evicting(p, place);
  const cache = m.evictionBuffer('mass', place, part);
  const runs = heldRuns(p, 0, p.held);
  const dispatches = Array.from({ length: rows }, (_, row) =>
    runs.map(({ slot, before, tokens }): Dispatch => {
      const op = { ...visit.op, shape: { ...visit.op.shape, rows: tokens, heads: 1 } };
      const options = {
        capacity: m.caches.slots.capacity,
        chunk: tokens,
        first: slot,
        firstSequence: firstRow + row,
        output: { offset: row * p.rows + before, stride: 1 },
      };
      return { plan: plan(m, op, { load: options }), buffers: { cache, rows: massOf(p, place) } };
    }),
  );
  return Promise.resolve(dispatches.flat());
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
  'rope-k-held': rotateRing,
  'rope-kept': rotatePinned,
  'keep-k-held': keepHeld('key'),
  'keep-v-held': keepHeld('value'),
};
