/**
 * What a chunk of a prompt attends to: rows of its own run, exact in pass 1 and as the cache has them in pass 2, then the tokens before
 * the run. These are read from the cache where rows of full width lie there; from latents they are rebuilt, at most a chunk of tokens at
 * a time, into the rows that attention of the run has read by then.
 */
import { headsPerGpu, op, perHead, storageOf, type Configuration, type Op, type When } from './configuration.js';
import { branchKeyTime, branchWidth, readsLatents } from './eviction-ops.js';
import { groupOf } from './kernels.js';
import { chunksOf, heldOf, keepsRows, prefillRowType, shiftOf, type Chunk, type Pass } from './prefill-pass.js';

/** Matrices that a latent's product has, and the width of each: one a KV head, or one for all. */
export const encoders = (c: Configuration, kvHeads: number): [number, number] => (c.codec.kind === 'lla' ? [kvHeads, c.geometry.headDim] : [1, kvHeads * c.geometry.headDim]);

/** Rows of the cache as attention reads them: latents reconstructed in one loop, or rows of full width as they are. @param of tokens before the run */
export function readBackOps({ c, block }: Pass, rows: number, of?: 'earlier'): Op[] {
  const storage = storageOf(c);
  const kvHeads = headsPerGpu(c.geometry.kvHeads, c.gpus);
  const named = (label: string): string => (of ? `${label}-${of}` : label);
  const load = (label: string, heads: number, width: number, when: When = 'always') => op(named(label), 'load', storage, { rows, heads, width, groupSize: groupOf(storage, c.choice.groupSize) }, when);
  if (!readsLatents(c, block)) return [load('load-k', kvHeads, c.geometry.headDim), load('load-v', kvHeads, c.geometry.headDim)];
  const { kind, rankK = 0, rankV = 0 } = c.codec;
  const [groups, width] = encoders(c, kvHeads);
  const latents = kind === 'lla' ? kvHeads : 1;
  const branch = branchWidth(c, block);
  return [
    load('load-k', latents, rankK), perHead(named('reconstruct-k'), groups, rows, rankK, width),
    load('load-v', latents, rankV), perHead(named('reconstruct-v'), groups, rows, rankV, width),
    ...(branch > 0 ? [load('load-branch', c.branch.perHead ? kvHeads : 1, branch, of ? 'always' : branchKeyTime(c))] : []),
  ];
}

/** Attention of a chunk. Where rows before the run lie elsewhere than its own, it is several calls. */
export function attendOps(p: Pass, chunk: Chunk): Op[] {
  const { c, block, run } = p;
  const own = prefillRowType(c);
  if (!keepsRows(c)) return [attend(p, 'attend', own, chunk, run.from + chunk.from)];
  if (run.from === 0) return [attend(p, 'attend', own, chunk, chunk.from)];
  const itself = attend(p, 'attend', `${own}+own`, chunk, chunk.from);
  if (readsLatents(c, block)) return [itself, ...rebuiltOps(p, chunk)];
  if (!turnsQueries(p)) return [itself, ...cachedOps(p, chunk, 'attend-cached')];
  const [sinks, ...others] = cachedOps(p, chunk, 'attend-sinks');
  const turn = (label: string): Op => op(label, 'rope', c.geometry.rope.pairing, { rows: p.batch * chunk.tokens, heads: headsPerGpu(c.geometry.heads, c.gpus), headDim: c.geometry.headDim });
  return [turn('rope-inside'), sinks as Op, turn('rope-onward'), itself, ...others.map((o) => ({ ...o, label: 'attend-cached' }))];
}

/**
 * StreamingLLM, once tokens were evicted: sinks are nearer than their positions say. Where their keys are cached rotated, queries are
 * rotated to their places in the cache first, meet the sinks, and are turned on to their positions for everything else.
 */
export const turnsQueries = ({ c, block, run }: Pick<Pass, 'c' | 'block' | 'run'>): boolean => shiftOf(c, run.from) > 0 && c.eviction?.policy === 'streaming' && c.eviction.sinkTokens > 0 && !readsLatents(c, block);

/** @param variant of attend_carried where it differs from the rows' type */
function attend({ c, block, batch }: Pass, label: string, variant: string, { tokens }: Chunk, context: number): Op {
  const { headDim, kvHeads, heads } = c.geometry;
  const rows = headsPerGpu(kvHeads, c.gpus);
  const shape = { sequences: batch, kvHeads: rows, group: headsPerGpu(heads, c.gpus) / rows, queries: tokens, context, keyWidth: headDim + branchWidth(c, block), valueWidth: headDim };
  const cached = label === 'attend-cached' || label === 'attend-sinks';
  const carried = label !== 'attend' || variant.endsWith('+own');
  return carried ? op(label, 'attend_carried', variant, { ...shape, groupSize: cached ? groupOf(storageOf(c), c.choice.groupSize) : 0 }) : op(label, 'attend_prefill', variant, shape);
}

/** Rows of full width, where the cache has them. */
const cachedOps = (p: Pass, chunk: Chunk, label: string): Op[] => heldOf(p.c, p.run.from).map(({ from, tokens }) => ({ ...attend(p, label, storageOf(p.c), chunk, tokens), from }));

/** Latents, piece by piece. */
function rebuiltOps(p: Pass, chunk: Chunk): Op[] {
  const { c, block, batch } = p;
  const { headDim, rope } = c.geometry;
  const kvHeads = headsPerGpu(c.geometry.kvHeads, c.gpus);
  return heldOf(c, p.run.from)
    .flatMap((held) => chunksOf(held, p.chunkTokens))
    .flatMap(({ from, tokens }) => {
      const rows = batch * tokens;
      const keep = (label: string): Op => op(label, 'append', prefillRowType(c), { rows, heads: kvHeads, width: headDim, groupSize: 0 });
      return [
        ...readBackOps(p, rows, 'earlier'),
        ...(branchWidth(c, block) > 0 ? turnedBranch(p, from, rows) : [op('rope-k-earlier', 'rope', rope.pairing, { rows, heads: kvHeads, headDim })]),
        keep('keep-k-earlier'),
        keep('keep-v-earlier'),
        attend(p, 'attend-earlier', prefillRowType(c), chunk, tokens),
      ].map((o) => ({ ...o, from }));
    });
}

/** Sinks' branch keys are cached rotated by their positions. */
function turnedBranch({ c, block, run }: Pass, from: number, rows: number): Op[] {
  const sink = c.eviction?.policy === 'streaming' && from < c.eviction.sinkTokens;
  if (!sink || shiftOf(c, run.from) === 0) return [];
  return [op('rope-branch-earlier', 'rope', c.geometry.rope.pairing, { rows, heads: c.branch.perHead ? headsPerGpu(c.geometry.kvHeads, c.gpus) : 1, headDim: branchWidth(c, block) })];
}
