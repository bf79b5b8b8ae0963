/**
 * What a chunk of a prompt attends to: rows of its own run, exact in pass 1 and as the cache has them in pass 2, then
 * the tokens before the run. These are read from the cache where rows of full width lie there; from latents they are
 * rebuilt, at most a chunk of tokens at a time, into the rows that attention of the run has read by then.
 */
import { reindexes, weighsTokens } from '../../eviction/policy.js';
import { branchHeadsOf, groupSizeOf, headsOf, kvHeadsOf, op, storageOf, type Op } from '../configuration.js';
import { branchWidth, readsLatents } from '../eviction-ops.js';
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
import { weighs } from './h2o.js';
import { keepOp, readBackOps } from './rows.js';
import { ropeOp } from '../rows.js';

/**
 * Attention of a chunk. Where rows before the run are in other buffers than its own, it is several calls. Where masses
 * are counted, it also writes the softmax statistics. @param pieces of latents before the run
 */
export function attendOps(p: Pass, chunk: Chunk, pieces: readonly Chunk[] = piecesOf(p)): Op[] {
  const { c, block, run } = p;
  const own = keptRowType(c, p.captures);
  if (!keepsRows(c)) return [attend(p, 'attend', own, chunk, run.from + chunk.from)];
  // Under H2O rows before the run are stored before its own.
  if (weighsTokens(c.eviction))
    return [attend(p, 'attend', weighs(p) ? `${own}+own` : own, chunk, cachedBefore(c, run) + chunk.from)];
  if (run.from === 0) return [attend(p, 'attend', own, chunk, chunk.from)];
  const itself = attend(p, 'attend', `${own}+own`, chunk, chunk.from);
  if (readsLatents(c, block)) return [itself, ...pieces.flatMap((piece) => rebuiltOps(p, chunk, piece))];
  if (!rotatesQueries(p)) return [itself, ...cachedOps(p, chunk, 'attend-cached')];
  const [sinks, ...others] = cachedOps(p, chunk, 'attend-sinks');
  const turn = (label: string): Op => ropeOp(c, label, p.batch * chunk.tokens, headsOf(c));
  return [
    turn('rope-inside'),
    sinks as Op,
    turn('rope-onward'),
    itself,
    ...others.map((o) => ({ ...o, label: 'attend-cached' })),
  ];
}

/**
 * StreamingLLM, once tokens were evicted: positions count inside the cache, so sinks are nearer. Where their keys are
 * cached rotated, queries are first rotated to their place in the cache and attend to the sinks, then they are rotated
 * to their positions for everything else.
 */
export const rotatesQueries = ({ c, block, run }: Pick<Pass, 'c' | 'block' | 'run'>): boolean =>
  shiftOf(c, run.from) > 0 && reindexes(c.eviction) && c.eviction.sinkTokens > 0 && !readsLatents(c, block);

/** @param variant of attend_carried where it differs from the rows' type */
function attend({ c, block, batch }: Pass, label: string, variant: string, { tokens }: Chunk, context: number): Op {
  const { headDim } = c.geometry;
  const kvHeads = kvHeadsOf(c);
  const shape = {
    sequences: batch,
    kvHeads,
    group: headsOf(c) / kvHeads,
    queries: tokens,
    context,
    keyWidth: headDim + branchWidth(c, block),
    valueWidth: headDim,
  };
  const cached = label === 'attend-cached' || label === 'attend-sinks';
  const carried = label !== 'attend' || variant.endsWith('+own');
  return carried
    ? op(label, 'attend_carried', variant, { ...shape, groupSize: cached ? groupSizeOf(c) : 0 })
    : op(label, 'attend_prefill', variant, shape);
}

/** Rows of full width, where the cache has them. */
function cachedOps(p: Pass, chunk: Chunk, label: string): Op[] {
  const { pinned, ring } = cachedRuns(p);
  return [...pinned, ...ring].map(({ from, tokens }) => ({
    ...attend(p, label, storageOf(p.c), chunk, tokens),
    from,
  }));
}

/**
 * Stretches before the run whose rows are rebuilt from latents, a piece of at most a chunk of tokens after the other.
 */
export function earlierOf(p: Pick<Pass, 'c' | 'block' | 'run' | 'slots'>): Chunk[] {
  if (!readsLatents(p.c, p.block) || weighsTokens(p.c.eviction)) return [];
  const { pinned, ring } = cachedRuns(p);
  return [...pinned, ...ring];
}

const piecesOf = (p: Pass): Chunk[] => earlierOf(p).flatMap((held) => chunksOf(held, p.chunkTokens));

/** One piece of latents. Pieces of one stretch with equal length have the same calls. */
export function rebuiltOps(p: Pass, chunk: Chunk, { from, tokens }: Chunk): Op[] {
  const { c, block, batch } = p;
  const rows = batch * tokens;
  return [
    ...readBackOps(p, rows, 'always').map((o) => ({ ...o, label: `${o.label}-earlier` })),
    ...(branchWidth(c, block) > 0 ? rotatedBranch(p, from, rows) : [ropeOp(c, 'rope-k-earlier', rows, kvHeadsOf(c))]),
    keepOp(p, 'keep-k-earlier', rows),
    keepOp(p, 'keep-v-earlier', rows),
    attend(p, 'attend-earlier', prefillRowType(c), chunk, tokens),
  ].map((o) => ({ ...o, from }));
}

/** Sinks' branch keys are cached rotated by their positions. */
function rotatedBranch({ c, block, run }: Pass, from: number, rows: number): Op[] {
  const sink = reindexes(c.eviction) && from < c.eviction.sinkTokens;
  if (!sink || shiftOf(c, run.from) === 0) return [];
  return [ropeOp(c, 'rope-branch-earlier', rows, branchHeadsOf(c), 'always', branchWidth(c, block))];
}
