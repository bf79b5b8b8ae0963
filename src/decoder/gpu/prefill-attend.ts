/**
 * Attention of a prompt: over the run's rows, and over those of tokens before the run, in the cache or rebuilt from
 * latents piece by piece.
 */
import type { PrefillOptions } from '../../../kernels/options.js';
import { pathSpec } from '../../codecs/paths.js';
import { reindexes } from '../../eviction/policy.js';
import type { Buffer } from '../../gpu/index.js';
import { branchWidth } from '../../schedule/eviction-ops.js';
import type { Visit } from '../../schedule/expand.js';
import { keepsRows, shiftOf, turnsQueries } from '../../schedule/prefill.js';
import type { CodecAxis } from '../tensors.js';
import { slotOf } from './caches.js';
import { plan, type Executor, type Executors } from './dense.js';
import { placed, type Dispatch, type Placed } from './machine.js';
import { addMean, load, reconstruct } from './prefill-rows.js';
import { fromOf, into, type Prompt, type Rowset } from './prompt.js';
import { append, rotate } from './rows.js';

/** Where attention's queries lie, with those of the rotary branch. */
export function queriesOf(p: Prompt, visit: Visit): Pick<PrefillOptions, 'queries' | 'branch'> {
  const { queries, branch } = p.packed;
  const { width } = p.c.branch;
  if (branchWidth(p.c, placed(visit).block) === 0) return { queries };
  return { queries, branch: { width, heads: p.branchHeads, queries: { ...branch, head: width } } };
}

/**
 * Attention over the shape's context, and the chunk itself where it is among the rows. @param keys of the rotary branch
 */
async function attention(
  p: Prompt,
  visit: Visit,
  rows: (axis: CodecAxis) => Rowset,
  more: Pick<PrefillOptions, 'first' | 'carried'> = {},
  keys?: Buffer,
): Promise<Dispatch> {
  const { op } = visit;
  const { heads, headDim } = p.c.geometry;
  const { context = 0, queries = 0 } = op.shape;
  const { capacity, firstSequence } = rows('key');
  const at = queriesOf(p, visit);
  const output = { offset: 0, stride: heads * headDim };
  const spans = await p.allocations.make(`span ${context} ${queries}`, 'control', 8);
  await p.device.write(spans, Uint32Array.of(context, queries));
  return {
    plan: plan(p, visit, { prefill: { capacity, firstSequence, ...at, output, ...more } }),
    buffers: {
      queries: p.projections,
      keys: rows('key').cache,
      values: rows('value').cache,
      output: p.results,
      spans,
      ...(at.branch ? { branchQueries: p.projections, branchKeys: keys ?? p.branchKeys(visit).rows } : {}),
      ...(op.kernel === 'attend_carried' ? { statistics: p.buffer('statistics') } : {}),
    },
  };
}

/** The run's rows: kept ones, or those of the cache, which also holds the rows before it. */
const attend: Executor<Prompt> = async (p, visit) => {
  const { c } = p;
  const rows = (axis: CodecAxis): Rowset => (keepsRows(c) ? p.kept(axis, visit) : p.inCache(axis, visit));
  const turned = turnsQueries({ c, block: placed(visit).block, run: { from: p.before, tokens: p.tokens } });
  return attention(p, visit, rows, turned ? { carried: true } : {});
};

const attendEarlier: Executor<Prompt> = (p, visit) => {
  const keys = pathSpec(p.c.path).branch ? earlierBranch(p).rows : undefined;
  return attention(p, visit, (axis) => p.kept(axis, visit), {}, keys);
};

/** Slot of a token before the run. A piece of them has neighbouring slots. */
const slotBefore = (p: Prompt, visit: Visit): number => slotOf(p.caches.slots, fromOf(visit));

/** Rows of the cache in neighbouring slots. @param carried state of the calls before */
const attendCached =
  (carried: boolean): Executor<Prompt> =>
  (p, visit) =>
    attention(p, visit, (axis) => p.inCache(axis, visit), { first: slotBefore(p, visit), carried });

const earlierLatents = (p: Prompt): Buffer => p.buffer('earlier latents');
const earlierBranch = (p: Prompt): Placed => ({
  rows: p.buffer('earlier branch keys'),
  at: { offset: 0, stride: p.branchHeads * p.c.branch.width },
});

/** Rows of a piece before the run. */
const loadEarlier =
  (role: 'key-latent' | 'value-latent' | 'rotary-key', to: (p: Prompt) => Placed): Executor<Prompt> =>
  (p, visit) =>
    load(p, visit, p.inCache(role, visit), slotBefore(p, visit), to(p));
const latentsOfPiece =
  (axis: CodecAxis) =>
  (p: Prompt): Placed => ({ ...p.chunkLatents(axis), rows: earlierLatents(p) });

/** Rebuilt rows of tokens before the run overwrite its own, to which attention has been computed. */
const keepEarlier =
  (axis: CodecAxis): Executor<Prompt> =>
  (p, visit) =>
    append(p, visit, into(visit, p.kept(axis, visit), 0), p.projected(axis));

const shift = (p: Prompt): number => shiftOf(p.c, p.before);
const isSink = ({ c }: Prompt, visit: Visit): boolean => reindexes(c.eviction) && fromOf(visit) < c.eviction.sinkTokens;

/** Rebuilt keys: sinks are rotated to their place inside the cache. */
const rotateEarlier: Executor<Prompt> = (p, visit) => {
  const positionOffset = fromOf(visit) + (isSink(p, visit) ? shift(p) : 0);
  return rotate(p, visit, p.projected('key'), p.c.geometry.headDim, { positionOffset });
};

/** Queries, to their place inside the cache. */
const rotateInside: Executor<Prompt> = (p, visit) => {
  const queries = { rows: p.projections, at: p.packed.queries };
  const positionOffset = p.firstPosition(visit) - shift(p);
  return rotate(p, visit, queries, p.c.geometry.headDim, { positionOffset });
};

/** Rotation of all rows by as much as evicted tokens take away. */
const rotateShift = (p: Prompt, visit: Visit, of: Placed, width: number): Dispatch =>
  rotate(p, visit, of, width, { positionOffset: shift(p) }, { positions: p.buffer('one position') });
const rotateOnward: Executor<Prompt> = (p, visit) =>
  rotateShift(p, visit, { rows: p.projections, at: p.packed.queries }, p.c.geometry.headDim);
const rotateEarlierBranch: Executor<Prompt> = (p, visit) => rotateShift(p, visit, earlierBranch(p), p.c.branch.width);

export const PREFILL_ATTEND_EXECUTORS: Executors<Prompt> = {
  attend,
  'load-k-earlier': loadEarlier('key-latent', latentsOfPiece('key')),
  'load-v-earlier': loadEarlier('value-latent', latentsOfPiece('value')),
  'load-branch-earlier': loadEarlier('rotary-key', earlierBranch),
  'reconstruct-k-earlier': reconstruct('key', earlierLatents),
  'reconstruct-v-earlier': reconstruct('value', earlierLatents),
  'mean-k-earlier': addMean('key'),
  'mean-v-earlier': addMean('value'),
  'rope-k-earlier': rotateEarlier,
  'rope-branch-earlier': rotateEarlierBranch,
  'keep-k-earlier': keepEarlier('key'),
  'keep-v-earlier': keepEarlier('value'),
  'attend-earlier': attendEarlier,
  'attend-cached': attendCached(true),
  'attend-sinks': attendCached(false),
  'rope-inside': rotateInside,
  'rope-onward': rotateOnward,
};
