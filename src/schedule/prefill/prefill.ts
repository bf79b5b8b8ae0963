/**
 * The operations of a prompt's prefill (cost/memory.ts, prefillPeaks): layer by layer over a run of its tokens,
 * products and attention in chunks, with the K and V of one (layer, loop) in 16 bits (32 where the cache has 32). Pass
 * 1 is the exact forward; it writes the cache, latents after their loops have accumulated. Pass 2 runs again with the
 * cache's contents, and decoding continues from it: latents are loaded and reconstructed. Codecs without latents need
 * no pass 2, except where it reads the last loop's rows in every loop (`takesTwoPasses`). `accumulated` treats the
 * whole prompt as one run. `chunked` has a run for each chunk, which attends to those before it in the cache. The
 * capturing kinds are one run too; they encode latents from captures (prefill-captured.ts).
 */
import { isLatent, takesTwoPasses } from '../../codecs/registry.js';
import { blocksOf } from '../../geometry/geometry.js';
import { allocatedTokens } from '../../eviction/policy.js';
import { anchoredIn, AXES, kvHeadsOf, NAME, type Configuration } from '../configuration.js';
import { attentionOut, layerAround, mlpOps, queryKeyValue } from '../dense.js';
import { branchWidth, closingTime, hasHybridLatents, owningTime, readsLatents, streamsIn } from '../facts.js';
import {
  adapterOps,
  embeddingOps,
  firstState,
  headOps,
  loopChange,
  loopNorm,
  loopState,
  stackOps,
  type Choice,
} from '../network.js';
import type { Op } from '../op.js';
import { attendOps, rotatesQueries } from './attend.js';
import { encodingStages, layerEncoding } from './captured.js';
import {
  capturesOf,
  chunksOf,
  cachedBefore,
  keepsRows,
  over,
  PREFILL_CHUNK_TOKENS,
  readsReconstructions,
  runsOf,
  setsRowsAside,
  storesRun,
  takenAs,
  type Chunk,
  type HowTaken,
  type Pass,
  type WholePrompt,
} from './pass.js';
import { prefixOps } from './cached-prefix.js';
import { promptEvictOps, promptMassOps } from './h2o.js';
import { keepOp, readBackOps, recentOps, writeBranchOps, writeLatentOps } from './rows.js';
import { keptTokenOps } from './kept-tokens.js';
import { APPEND_ROWS, appendOp, encodeOps, hybridAppendOps, meanOps, rotateOps } from '../rows.js';
import { exchanges, type Schedule, type Stage } from '../schedule.js';
import { packPromptOps, promptLoops, scoreRowsOps } from '../streams.js';

export * from './pass.js';

/** Operations that prefill a prompt of so many tokens (≥ 1). */
export function prefillSchedule(
  c: Configuration,
  promptTokens: number,
  chunkTokens = PREFILL_CHUNK_TOKENS,
  method: WholePrompt = 'accumulated',
): Schedule {
  const taken = takenAs(c, method, chunkTokens);
  const runs = runsOf(taken, 0, promptTokens);
  const parts = runs.map((run, i) => runSchedule(c, run, { ...taken, ends: i === runs.length - 1 }));
  return { stages: parts.flatMap((part) => part.stages), collectives: parts.flatMap((part) => part.collectives) };
}

export interface RunOptions extends HowTaken {
  /** The prompts end with this run: logits of their last tokens are computed. */
  readonly ends: boolean;
  /** Lists only the operations of these chunks; of all unless given. */
  readonly chunks?: readonly Chunk[];
  /** Tokens that each cached row has room for; no more than are kept unless given. */
  readonly slots?: number;
  /** How tokens are chosen; greedily unless given. */
  readonly choice?: Choice;
}

/** Tokens of a cached row that has room for what is kept. */
export const keptSlots = (c: Configuration): number => allocatedTokens(c.eviction, Infinity);

/** The operations of one run, whose positions follow those that the caches hold. A run after others is a chunk. */
export function runSchedule(c: Configuration, run: Chunk, of: RunOptions): Schedule {
  const { chunkTokens, method, ends, chunks = chunksOf({ from: 0, tokens: run.tokens }, chunkTokens) } = of;
  const { slots = keptSlots(c), choice = 'greedy' } = of;
  const first = { c, run, slots, pass2: false, chunkTokens, captures: capturesOf(c, method) };
  const twice = takesTwoPasses(c.codec);
  const second = twice ? [...encodingStages(first, chunks), ...passStages({ ...first, pass2: true }, chunks)] : [];
  // Only the last token's logits are computed, in the last pass.
  const head: Stage = { kind: 'once', ops: headOps(c, 1, choice) };
  const rows = run.tokens;
  const exchanged = exchanges(c, { rows, logits: 1, mass: rows, passes: twice ? 2 : 1 });
  return {
    stages: [...passStages(first, chunks), ...second, ...(ends ? [head] : [])],
    collectives: exchanged.filter(({ label }) => ends || label !== 'logits'),
  };
}

/** Operations that depend on a chunk's position: attention, the mass that it gives, its rows that join the cache. */
export const placedOps = (p: Pass, chunk: Chunk, pieces: readonly Chunk[]): Op[] => [
  ...recentOps(p, chunk),
  ...prefixOps(p),
  ...attendOps(p, chunk, pieces),
  ...promptMassOps(p, chunk),
  ...keptTokenOps(p, chunk),
  ...(evictsBehind(p) ? promptEvictOps(p) : []),
];

/** True where the tokens that stay are also chosen among cached ones, which depends on the run's position. */
const evictsBehind = ({ c, run }: Pass): boolean => cachedBefore(c, run) > 0;

/** One pass of the network, without its head. */
function passStages(of: Omit<Pass, 'block'>, chunks: readonly Chunk[]): Stage[] {
  const { c, run } = of;
  const stages: Stage[] = [{ kind: 'once', ops: embeddingOps(c, run.tokens) }];
  for (const all of blocksOf(c.geometry))
    for (const { block, tokens, streams } of promptLoops(c, all, run.tokens)) {
      const part = tokens === run.tokens ? chunks : selectedChunks(run.tokens, tokens, of.chunkTokens);
      stages.push({
        kind: 'stack',
        block,
        loopStart: [
          ...over(part, (chunk) => adapterOps(c, block, chunk.tokens)),
          ...firstState(c, block, tokens),
          ...loopState(c, block, tokens),
        ],
        ...stackOps(c, block, tokens),
        layer: layerOps({ ...of, block, run: { from: run.from, tokens }, ...(streams ? { streams } : {}) }, part),
        loopEnd: [
          ...over(part, (chunk) => loopChange(c, block, chunk.tokens)),
          ...loopNorm(c, block, tokens),
          ...scoreRowsOps(c, block, tokens),
        ],
      });
    }
  return stages;
}

/** Chosen tokens lie anywhere in a prompt: as chunks that attend to as many rows as these on average. */
const selectedChunks = (prompt: number, tokens: number, chunkTokens: number): Chunk[] =>
  chunksOf({ from: Math.floor((prompt - tokens) / 2), tokens }, chunkTokens);

function layerOps(p: Pass, chunks: readonly Chunk[]): Op[] {
  const { c, run } = p;
  const attention = [
    ...over(chunks, (chunk) => attentionOps(p, chunk)),
    ...(evictsBehind(p) ? [] : promptEvictOps(p)),
    ...packPromptOps(c, p),
    ...layerEncoding(p, chunks),
  ];
  const mlp = over(chunks, (chunk) => mlpOps(c, chunk.tokens));
  return layerAround(c, run.tokens, attention, mlp);
}

/** Attention of a chunk, from its projections to that of its output. */
function attentionOps(p: Pass, chunk: Chunk): Op[] {
  const { c, block, pass2 } = p;
  const rows = chunk.tokens;
  const owning = owningTime(c, block);
  const there = readsReconstructions(p);
  const latents = readsLatents(c, block);
  // Keys of pass 2 are those of the cache, rotated unless they come from latents; so are the branch's.
  const keyed = !pass2 || (latents && !there && branchWidth(c, block) === 0);
  return [
    ...queryKeyValue(c, block, rows, !pass2),
    ...(pass2 ? readBackOps(p, rows) : p.captures ? [] : encodeOps(c, block, rows)),
    ...rotateOps(c, block, rows, !rotatesQueries(p), keyed),
    ...(pass2 ? [] : meanOps(c, block, rows)),
    ...(pass2 || (c.eviction !== null && !setsRowsAside(c) && !storesRun(c)) ? [] : appendOps(p, rows)),
    ...recentOps(p, chunk),
    ...(keepsRows(c) && !there ? AXES.map((axis) => keepOp(p, axis, rows, owning)) : []),
    ...prefixOps(p),
    ...attendOps(p, chunk),
    ...promptMassOps(p, chunk),
    ...(pass2 ? [] : closingOps(p, rows)),
    ...attentionOut(c, rows),
    ...keptTokenOps(p, chunk),
    ...(evictsBehind(p) ? promptEvictOps(p) : []),
  ];
}

const isCoreLatent = ({ c, block }: Pass): boolean => block.name === 'core' && isLatent(c.codec);

/** Writing of rows of full width, before attention may read them. */
function appendOps(p: Pass, rows: number): Op[] {
  const { c, block } = p;
  // Streams are packed when the rows of all tokens are there.
  if (isCoreLatent(p) || anchoredIn(c, block) > 1 || streamsIn(c, block)) return [];
  const owning = owningTime(c, block);
  const when = owning === 'always' ? closingTime(c, block) : owning;
  const { headDim } = c.geometry;
  return AXES.map((axis) => appendOp(c, `append-${NAME[axis]}`, rows, kvHeadsOf(c), headDim, APPEND_ROWS[axis], when));
}

/** The end of a chunk's attention: writing the latents that are complete, and their branch keys. */
const closingOps = (p: Pass, rows: number): Op[] =>
  hasHybridLatents(p.c, p.block)
    ? hybridAppendOps(p.c, rows)
    : isCoreLatent(p)
      ? [...(p.captures ? [] : AXES.flatMap((axis) => writeLatentOps(p, axis, rows))), ...writeBranchOps(p, rows)]
      : [];
