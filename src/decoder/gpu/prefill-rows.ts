/**
 * Rows of a prompt that a step does not have: kept for attention, read back from the cache, reconstructed, and joining a
 * cache that is evicted from. Positions are those of the run's tokens; buffers have rows of the run alone.
 */
import type { Rows } from '../../../kernels/options.js';
import { readsLatents, closingTime } from '../../schedule/eviction-ops.js';
import { latentsOf } from '../../schedule/configuration.js';
import type { Visit } from '../../schedule/expand.js';
import type { Buffer } from '../../gpu/index.js';
import type { CodecAxis } from '../tensors.js';
import type { CacheRole } from './caches.js';
import { plan, type Executor, type Executors } from './dense.js';
import { loopOf, placed, type Dispatch, type Placed } from './machine.js';
import { countOf, fromOf, into, type Prompt, type Rowset } from './prompt.js';
import { append, rotate } from './rows.js';

/** Queries of a chunk, or its keys too, where they were projected. */
const ropeInPlace: Executor<Prompt> = (p, visit) =>
  rotate(p, visit, { rows: p.projections, at: p.packed.queries }, p.c.geometry.headDim);

const ropeBranch: Executor<Prompt> = (p, visit) =>
  rotate(p, visit, { rows: p.projections, at: p.packed.branch }, p.c.branch.width);

/** Rows as attention reads them. */
export const keep =
  (axis: CodecAxis): Executor<Prompt> =>
  (p, visit) =>
    append(p, visit, into(visit, p.kept(axis, visit)), p.projected(axis));

/** Cached rows from a slot on, as floats. */
export function load(
  p: Prompt,
  visit: Visit,
  { cache, capacity, firstSequence }: Rowset,
  slot: number,
  { rows, at }: Placed,
): Dispatch {
  const options = { capacity, chunk: countOf(visit), first: slot, firstSequence, output: at };
  return { plan: plan(p, visit, { load: options }), buffers: { cache, rows } };
}

/** The role of a layer's rows of an axis. */
export const roleOf = (p: Prompt, visit: Visit, axis: CodecAxis): CacheRole =>
  readsLatents(p.c, placed(visit).block) ? `${axis}-latent` : axis;

/** Latents that are read go where attention's output will be; rows of full width overwrite the chunk's own. */
export const loaded = (p: Prompt, visit: Visit, axis: CodecAxis): Placed =>
  readsLatents(p.c, placed(visit).block) ? p.chunkLatents(axis) : p.projected(axis);

/** Rows of the chunk. */
const loadRows =
  (axis: CodecAxis): Executor<Prompt> =>
  (p, visit) => {
    const rows = p.ownRows(roleOf(p, visit, axis), visit, loopOf(visit));
    return load(p, visit, rows, rows.first + fromOf(visit), loaded(p, visit, axis));
  };

const loadBranch: Executor<Prompt> = (p, visit) => {
  const rows = p.ownRows('rotary-key', visit);
  return load(p, visit, rows, rows.first + fromOf(visit), p.branchKeys(visit));
};

/** W_up,t c of latents that were read back; it overwrites the chunk's own keys or values. */
export const reconstruct =
  (axis: CodecAxis, latents = (p: Prompt): Buffer => p.results): Executor<Prompt> =>
  async (p, visit) => {
    const [{ layer }, loop] = [placed(visit), loopOf(visit)];
    const { rows, at } = p.projected(axis);
    const rank = p.rankOf(axis);
    // The matrices that decoding has: by row for keys, which it rebuilds or absorbs, by column for values that follow
    // the sum.
    const byRow = axis === 'key' || p.c.materialised;
    const weights = byRow ? await p.weights.upRows(layer, loop, axis) : await p.weights.upColumns(layer, loop, axis);
    const x: Rows = { row: p.latentRow(axis), group: latentsOf(p.c) === 1 ? 0 : rank };
    const y: Rows = { offset: at.offset, row: at.stride, group: p.c.geometry.headDim };
    return {
      plan: plan(p, visit, { matmul: { x, y, transposed: byRow } }),
      buffers: { x: latents(p), weights, y: rows },
    };
  };

/** Adds mu_t to them. */
export const addMean =
  (axis: CodecAxis): Executor<Prompt> =>
  async (p, visit) => {
    const { rows, at } = p.projected(axis);
    return {
      plan: plan(p, visit, { placement: { input: { offset: 0, stride: 0 }, output: at } }),
      buffers: { input: await p.weights.mean(placed(visit).layer, loopOf(visit), axis), target: rows },
    };
  };

/**
 * The run's rows that stay pass through the buffer of results, which the projection of attention's output has read by
 * then.
 */
function stayingExecutors(what: CodecAxis | 'rotary-key'): [string, Executor<Prompt>][] {
  const name = what === 'key' ? 'k' : what === 'value' ? 'v' : 'branch';
  const role = (p: Prompt, visit: Visit): CacheRole => (what === 'rotary-key' ? what : roleOf(p, visit, what));
  const through = (p: Prompt, { op }: Visit): Placed => ({
    rows: p.results,
    at: { offset: 0, stride: (op.shape.heads as number) * (op.shape.width as number) },
  });
  const read: Executor<Prompt> = (p, visit) => {
    const from = p.aside ? p.ownRows(role(p, visit), visit) : p.kept(what as CodecAxis, visit);
    return load(p, visit, from, fromOf(visit), through(p, visit));
  };
  const write: Executor<Prompt> = (p, visit) => {
    const wasRead = p.aside !== undefined || closingTime(p.c, placed(visit).block) === 'closing-layer';
    const to = into(visit, p.inCache(role(p, visit), visit), fromOf(visit), p.caches.slots);
    return wasRead
      ? append(p, visit, to, through(p, visit))
      : append(p, visit, { ...to, row: p.rowOf(visit) }, p.projected(what as CodecAxis));
  };
  return [
    [`load-${name}-staying`, read],
    [`append-${name}-staying`, write],
  ];
}

export const PREFILL_ROW_EXECUTORS: Executors<Prompt> = {
  rope: ropeInPlace,
  'rope-branch': ropeBranch,
  'keep-k': keep('key'),
  'keep-v': keep('value'),
  'load-k': loadRows('key'),
  'load-v': loadRows('value'),
  'load-branch': loadBranch,
  'reconstruct-k': reconstruct('key'),
  'reconstruct-v': reconstruct('value'),
  'mean-k': addMean('key'),
  'mean-v': addMean('value'),
  ...Object.fromEntries((['key', 'value', 'rotary-key'] as const).flatMap((what) => stayingExecutors(what))),
};
