/**
 * What a chunk of a prompt attends to: rows of its own run, exact in pass 1 and as the cache has them in pass 2, then
 * the tokens before the run. These are read from the cache where rows of full width lie there; from latents they are
 * rebuilt, at most a chunk of tokens at a time, into the rows that attention of the run has read by then.
 */
import type { PrefillOptions } from '../../../kernels/attention-options.js';
import { reindexes, weighsTokens } from '../../eviction/policy.js';
import { fromOf, type PromptFrame, type Rowset } from '../bind/prompt.js';
import { type Bound, type BufferRef, type Placed } from '../bind/refs.js';
import {
  AXES,
  branchHeadsOf,
  groupSizeOf,
  headsOf,
  kvHeadsOf,
  storageOf,
  type Axis,
  type Visit,
} from '../configuration.js';
import { branchWidth, readsLatents } from '../facts.js';
import { op, withMore, type Bind, type Op } from '../op.js';
import { ropeOp } from '../rows.js';
import { weighs } from './h2o.js';
import {
  chunksOf,
  cachedBefore,
  cachedRuns,
  keepsRows,
  keptRowType,
  prefillRowType,
  shiftOf,
  type Chunk,
  type Pass,
} from './pass.js';
import { earlierBranch, keepOp, readBackOps, slotBefore } from './rows.js';

/** Attention of a chunk, in several calls where earlier rows are in other buffers. @param pieces of latents there */
export function attendOps(p: Pass, chunk: Chunk, pieces: readonly Chunk[] = piecesOf(p)): Op[] {
  const { c, block, run } = p;
  const own = keptRowType(c, p.captures);
  const itself = (context: number, type: string = own): Op => attend(p, 'attend', type, chunk, context, attendOwn(p));
  if (!keepsRows(c)) return [itself(run.from + chunk.from)];
  // Under H2O rows before the run are stored before its own.
  if (weighsTokens(c.eviction)) return [itself(cachedBefore(c, run) + chunk.from, weighs(p) ? `${own}+own` : own)];
  if (run.from === 0) return [itself(chunk.from)];
  const besideOthers = itself(chunk.from, `${own}+own`);
  if (readsLatents(c, block)) return [besideOthers, ...pieces.flatMap((piece) => rebuiltOps(p, chunk, piece))];
  const cached = cachedOps(p, chunk);
  if (!rotatesQueries(p)) return [besideOthers, ...cached];
  const [sinks, ...others] = cached;
  const { headDim } = c.geometry;
  const shift = shiftOf(c, run.from);
  const rope = (label: string, binds: Bind): Op => ropeOp(c, label, chunk.tokens, headsOf(c), binds);
  const inside: Bind = (f, visit) =>
    f.rotate(visit, f.inPacked('queries'), headDim, { positionOffset: f.firstPosition(visit) - shift });
  const onward = rotateShift(shift, (f) => f.inPacked('queries'), headDim);
  return [
    rope('rope-inside', inside),
    // They are the first that the queries attend to.
    { ...(sinks as Op), label: 'attend-sinks', binds: attendCached(false) },
    rope('rope-onward', onward),
    besideOthers,
    ...others,
  ];
}

/** Attention over the shape's context, and the chunk where it is among the rows. @param keys of the branch */
function attention(
  f: PromptFrame,
  visit: Visit,
  rows: (axis: Axis) => Rowset,
  more: Pick<PrefillOptions, 'first' | 'carried'> = {},
  keys?: BufferRef,
): Bound {
  const { heads, headDim } = f.c.geometry;
  const { context = 0, queries = 0 } = visit.op.shape;
  const { capacity, firstSequence } = rows('key');
  const output = { offset: 0, stride: heads * headDim };
  return {
    options: { prefill: { capacity, firstSequence, ...f.queriesOf(visit), output, ...more } },
    binds: {
      queries: f.projections,
      keys: rows('key').cache,
      values: rows('value').cache,
      output: f.results,
      spans: { contents: `span ${context} ${queries}`, words: [context, queries] },
      ...f.branchBinds(visit, keys),
      ...(visit.op.kernel === 'attend_carried' ? { statistics: f.buffer('statistics') } : {}),
    },
  };
}

/** The run's rows: kept ones, or those of the cache, which also holds the rows before it. */
const attendOwn = (p: Pass): Bind => {
  const more = rotatesQueries(p) ? { carried: true } : {};
  const kept = keepsRows(p.c);
  return (f: PromptFrame, visit: Visit) =>
    attention(f, visit, (axis) => (kept ? f.kept(axis, visit) : f.inCache(axis, visit)), more);
};

/** Rows of the cache in neighbouring slots. @param carried state of the calls before */
const attendCached =
  (carried: boolean): Bind =>
  (f: PromptFrame, visit: Visit) =>
    attention(f, visit, (axis) => f.inCache(axis, visit), { first: slotBefore(f, visit), carried });

/** Rotation of all rows by as much as evicted tokens take away. */
const rotateShift =
  (shift: number, of: (f: PromptFrame) => Placed, width: number): Bind =>
  (f: PromptFrame, visit: Visit) =>
    f.rotate(visit, of(f), width, { positionOffset: shift }, { positions: f.buffer('one position') });

/** StreamingLLM, once tokens were evicted: queries attend to sinks from their place inside the cache first. */
export const rotatesQueries = ({ c, block, run }: Pick<Pass, 'c' | 'block' | 'run'>): boolean =>
  shiftOf(c, run.from) > 0 && reindexes(c.eviction) && c.eviction.sinkTokens > 0 && !readsLatents(c, block);

/** @param variant of attend_carried where it differs from the rows' type */
function attend(
  { c, block }: Pass,
  label: string,
  variant: string,
  { tokens }: Chunk,
  context: number,
  binds: Bind,
): Op {
  const { headDim } = c.geometry;
  const kvHeads = kvHeadsOf(c);
  const shape = {
    sequences: 1,
    kvHeads,
    group: headsOf(c) / kvHeads,
    queries: tokens,
    context,
    keyWidth: headDim + branchWidth(c, block),
    valueWidth: headDim,
  };
  const cached = label === 'attend-cached';
  const carried = label !== 'attend' || variant.endsWith('+own');
  return carried
    ? op(label, 'attend_carried', variant, withMore(shape, { groupSize: cached ? groupSizeOf(c) : 0 }), binds)
    : op(label, 'attend_prefill', variant, shape, binds);
}

/** Rows of full width, where the cache has them. */
function cachedOps(p: Pass, chunk: Chunk): Op[] {
  const { pinned, ring } = cachedRuns(p);
  return [...pinned, ...ring].map(({ from, tokens }) => ({
    ...attend(p, 'attend-cached', storageOf(p.c), chunk, tokens, attendCached(true)),
    from,
  }));
}

/** Stretches before the run whose rows are rebuilt from latents, in pieces of at most a chunk of tokens. */
export function earlierOf(p: Pick<Pass, 'c' | 'block' | 'run' | 'slots'>): Chunk[] {
  if (!readsLatents(p.c, p.block) || weighsTokens(p.c.eviction)) return [];
  const { pinned, ring } = cachedRuns(p);
  return [...pinned, ...ring];
}

const piecesOf = (p: Pass): Chunk[] => earlierOf(p).flatMap((held) => chunksOf(held, p.chunkTokens));

/** One piece of latents. Pieces of one stretch with equal length have the same calls. */
export function rebuiltOps(p: Pass, chunk: Chunk, { from, tokens }: Chunk): Op[] {
  const { c, block } = p;
  const branch = branchWidth(c, block) > 0;
  const binds: Bind = (f: PromptFrame, visit: Visit) =>
    attention(f, visit, (axis) => f.kept(axis, visit), {}, branch ? earlierBranch(f).rows : undefined);
  return [
    ...readBackOps(p, tokens, 'always', 'earlier'),
    ...rotatedEarlier(p, from, tokens),
    ...AXES.map((axis) => keepOp(p, axis, tokens, 'always', 'earlier')),
    attend(p, 'attend-earlier', prefillRowType(c), chunk, tokens, binds),
  ].map((o) => withMore(o, { from }));
}

/** Rotation of rebuilt keys, sinks to their place inside the cache; cached branch keys: sinks' alone. */
function rotatedEarlier({ c, block, run }: Pass, from: number, rows: number): Op[] {
  const sink = reindexes(c.eviction) && from < c.eviction.sinkTokens;
  const shift = sink ? shiftOf(c, run.from) : 0;
  const branch = branchWidth(c, block);
  if (branch > 0) {
    const binds = rotateShift(shift, earlierBranch, branch);
    return shift > 0 ? [ropeOp(c, 'rope-branch-earlier', rows, branchHeadsOf(c), binds, 'always', branch)] : [];
  }
  const binds: Bind = (f, visit) =>
    f.rotate(visit, f.inPacked('keys'), c.geometry.headDim, { positionOffset: fromOf(visit) + shift });
  return [ropeOp(c, 'rope-k-earlier', rows, kvHeadsOf(c), binds)];
}
