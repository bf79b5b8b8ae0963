/**
 * The operations of the `accumulated` prefill (cost/memory.ts, prefillPeaks): layer by layer over the whole prompt, its products and
 * attention in chunks of tokens, with the K and V of one (layer, loop) in 16 bits (32 where the cache has 32). Pass 1 is the exact
 * forward; it writes the cache, latents after their loops have accumulated. Pass 2 runs the prompt again on what the cache holds,
 * which is what decoding continues: latents are read back and reconstructed. Codecs without latents need no pass 2.
 */
import { CODECS, isLatent } from '../codecs/registry.js';
import { segmentsOf, keptTokens } from '../eviction/policy.js';
import { blocksOf, type LayerBlock } from '../geometry/geometry.js';
import { headsPerGpu, op, perHead, project, storageOf, type Configuration, type Op, type When } from './configuration.js';
import { branchKeyTime, branchWidth, closingTime, readsLatents } from './eviction-ops.js';
import { groupOf, isQuantised } from './kernels.js';
import { exchanges, type Schedule, type Stage } from './schedule.js';

/** Prompt tokens that are worked on at once. */
export const PREFILL_CHUNK_TOKENS = 2048;

/** Element type of the rows that attention of a prompt reads: that of the cache, 16 bits where it is quantised. */
export const prefillRowType = (c: Configuration): 'f16' | 'f32' => (storageOf(c) === 'f32' ? 'f32' : 'f16');

/**
 * True where attention of a prompt reads exact rows of its own, kept for one (layer, loop): latents, quantised rows and rows of the last
 * loop alone are not what a prompt attends to. Elsewhere it reads the cache.
 */
export const keepsRows = (c: Configuration): boolean => isLatent(c.codec) || c.codec.kind === 'final-loop' || isQuantised(storageOf(c));

/** A run of a prompt's tokens. */
interface Chunk {
  readonly from: number;
  readonly tokens: number;
}

const chunksOf = (tokens: number, each: number): Chunk[] =>
  Array.from({ length: Math.ceil(tokens / each) }, (_, i) => ({ from: i * each, tokens: Math.min(each, tokens - i * each) }));

/**
 * Lists the operations that prefill `batch` prompts of `promptTokens` each (both ≥ 1). Under StreamingLLM only the tokens
 * that stay are encoded and written; H2O's choice among them is not listed: it has no kernel for whole prompts.
 */
export function prefillSchedule(c: Configuration, promptTokens: number, batch: number, chunkTokens = PREFILL_CHUNK_TOKENS): Schedule {
  const g = c.geometry;
  const passes = isLatent(c.codec) ? 2 : 1;
  const chunks = chunksOf(promptTokens, chunkTokens);
  const stages: Stage[] = [];
  for (let pass = 1; pass <= passes; pass++) {
    stages.push({ kind: 'once', ops: [op('embedding', 'embed', 'f16', { rows: batch * promptTokens, width: g.hidden })] });
    for (const block of blocksOf(g)) {
      const core = block.name === 'core';
      const adapter = core && g.adapter ? over(chunks, (chunk) => project(c, 'adapter', batch * chunk.tokens, 2 * g.hidden, Math.ceil(g.hidden / c.gpus))) : [];
      const loopNorm = core && g.normAfterEachLoop ? [op('loop-norm', 'rmsnorm', 'norm', { rows: batch * promptTokens, width: g.hidden })] : [];
      stages.push({ kind: 'stack', block, loopStart: adapter, layer: layerOps({ c, block, tokens: promptTokens, batch, again: pass === 2 }, chunks), loopEnd: loopNorm });
    }
  }
  // Only the last token's logits are wanted, of the last pass.
  const head = [...project(c, 'lm-head', batch, g.hidden, Math.ceil(g.vocab / c.gpus)), op('sample', 'sample', 'greedy', { rows: batch, vocab: g.vocab })];
  if (!g.normAfterEachLoop) head.unshift(op('final-norm', 'rmsnorm', 'norm', { rows: batch, width: g.hidden }));
  stages.push({ kind: 'once', ops: head });
  return { stages, collectives: exchanges(c, { rows: batch * promptTokens, encoded: batch * keptTokens(c.eviction, promptTokens), logits: batch, mass: 0, passes }) };
}

/** Operations of every chunk, one chunk after the other. */
const over = (chunks: readonly Chunk[], list: (chunk: Chunk) => readonly Op[]): Op[] => chunks.flatMap((chunk) => list(chunk).map((o) => ({ ...o, from: chunk.from })));

/** A layer of one pass. */
interface Pass {
  readonly c: Configuration;
  readonly block: LayerBlock;
  readonly tokens: number;
  readonly batch: number;
  /** Pass 2: what attention reads comes from the cache. */
  readonly again: boolean;
}

function layerOps(p: Pass, chunks: readonly Chunk[]): Op[] {
  const { c, batch, tokens } = p;
  const g = c.geometry;
  const mlp = Math.ceil(g.mlpHidden / c.gpus);
  const norm = (label: string, variant: string) => op(label, 'rmsnorm', variant, { rows: batch * tokens, width: g.hidden });
  const afterBranch = g.normsPerLayer === 4 ? 'norm-add' : 'add';
  return [
    norm('attention-norm', 'norm'),
    ...over(chunks, (chunk) => attentionOps(p, chunk)),
    norm('attention-residual', afterBranch),
    norm('mlp-norm', 'norm'),
    ...over(chunks, (chunk) => [
      ...(g.mlp === 'gated' ? project(c, 'gate-up', batch * chunk.tokens, g.hidden, 2 * mlp) : project(c, 'up', batch * chunk.tokens, g.hidden, mlp)),
      op('swiglu', 'swiglu', 'f32', { rows: batch * chunk.tokens, width: mlp }),
      ...project(c, 'down', batch * chunk.tokens, mlp, g.hidden),
    ]),
    norm('mlp-residual', afterBranch),
  ];
}

/** Attention of a chunk, from its projections to that of its output. */
function attentionOps(p: Pass, chunk: Chunk): Op[] {
  const { c, block, batch, again } = p;
  const g = c.geometry;
  const d = g.headDim;
  const heads = headsPerGpu(g.heads, c.gpus);
  const kvHeads = headsPerGpu(g.kvHeads, c.gpus);
  const rows = batch * chunk.tokens;
  const shares = block.name === 'core' && c.codec.kind === 'cla';
  const owning: When = shares ? 'owning-layer' : 'always';
  const branch = branchWidth(c, block);
  const branchHeads = c.branch.perHead ? kvHeads : 1;
  const rotate = (label: string, count: number, width: number, when: When = 'always') => op(label, 'rope', g.rope.pairing, { rows, heads: count, headDim: width }, when);
  const keep = (label: string) => op(label, 'append', prefillRowType(c), { rows, heads: kvHeads, width: d, groupSize: 0 }, owning);
  const keyed = again && !readsLatents(c, block) ? 0 : kvHeads;
  return [
    ...(shares ? [...project(c, 'q', rows, g.hidden, heads * d), ...project(c, 'kv', rows, g.hidden, 2 * kvHeads * d, owning)] : project(c, 'qkv', rows, g.hidden, (heads + 2 * kvHeads) * d + branch * heads)),
    ...(branch > 0 && !again ? project(c, 'branch-key', rows, g.hidden, branch * branchHeads, branchKeyTime(c)) : []),
    ...(again ? readBackOps(p, rows, kvHeads) : encodeOps(p, chunk, kvHeads)),
    ...(branch > 0 ? [rotate('rope-branch', heads, branch), ...(again ? [] : [rotate('rope-branch-key', branchHeads, branch, branchKeyTime(c))])]
      : shares ? [rotate('rope', heads, d), rotate('rope-k', kvHeads, d, owning)] : [rotate('rope', heads + keyed, d)]),
    ...(again ? [] : appendOps(p, chunk, kvHeads)),
    ...(keepsRows(c) ? [keep('keep-k'), keep('keep-v')] : []),
    op('attend', 'attend_prefill', prefillRowType(c), { sequences: batch, kvHeads, group: heads / kvHeads, queries: chunk.tokens, context: chunk.from, keyWidth: d + branch, valueWidth: d }),
    ...(again ? [] : closingOps(p, chunk, kvHeads)),
    ...project(c, 'attention-out', rows, heads * d, g.hidden),
  ];
}

/** Tokens of a chunk that stay in the cache. */
function keptOf({ c, tokens, batch }: Pass, { from, tokens: count }: Chunk): number {
  const { pinned, ring } = segmentsOf(c.eviction, tokens);
  const overlap = (begin: number, end: number): number => Math.max(0, Math.min(end, from + count) - Math.max(begin, from));
  return batch * (overlap(0, pinned) + overlap(tokens - ring, tokens));
}

/** Matrices that a latent's product has, and the width of each: one a KV head, or one for all. */
const encoders = (c: Configuration, kvHeads: number): [number, number] => (c.codec.kind === 'lla' ? [kvHeads, c.geometry.headDim] : [1, kvHeads * c.geometry.headDim]);

/** Encoding of exact keys and values in one loop. */
function encodeOps(p: Pass, chunk: Chunk, kvHeads: number): Op[] {
  const { c, block } = p;
  const rows = keptOf(p, chunk);
  if (block.name !== 'core' || !isLatent(c.codec) || rows === 0) return [];
  const { rankK = 0, rankV = 0 } = c.codec;
  const [groups, width] = encoders(c, kvHeads);
  return [perHead('encode-k', groups, rows, width, rankK), perHead('encode-v', groups, rows, width, rankV)];
}

/** Rows of the cache as attention reads them: latents reconstructed in one loop, or rows of full width as they are. */
function readBackOps({ c, block }: Pass, rows: number, kvHeads: number): Op[] {
  const storage = storageOf(c);
  const load = (label: string, heads: number, width: number, when: When = 'always') => op(label, 'load', storage, { rows, heads, width, groupSize: groupOf(storage, c.choice.groupSize) }, when);
  if (!readsLatents(c, block)) return [load('load-k', kvHeads, c.geometry.headDim), load('load-v', kvHeads, c.geometry.headDim)];
  const { kind, rankK = 0, rankV = 0 } = c.codec;
  const [groups, width] = encoders(c, kvHeads);
  const latents = kind === 'lla' ? kvHeads : 1;
  const branch = branchWidth(c, block);
  return [
    load('load-k', latents, rankK), perHead('reconstruct-k', groups, rows, rankK, width),
    load('load-v', latents, rankV), perHead('reconstruct-v', groups, rows, rankV, width),
    ...(branch > 0 ? [load('load-branch', c.branch.perHead ? kvHeads : 1, branch, branchKeyTime(c))] : []),
  ];
}

const appendOf = (c: Configuration, label: string, rows: number, heads: number, width: number, when: When): Op =>
  op(label, 'append', storageOf(c), { rows, heads, width, groupSize: groupOf(storageOf(c), c.choice.groupSize) }, when);

/** Writing of rows of full width, before attention may read them. */
function appendOps(p: Pass, chunk: Chunk, kvHeads: number): Op[] {
  const { c, block } = p;
  const rows = keptOf(p, chunk);
  if ((block.name === 'core' && isLatent(c.codec)) || rows === 0) return [];
  const when: When = block.name === 'core' && c.codec.kind === 'cla' ? 'owning-layer' : closingTime(c, block);
  return [appendOf(c, 'append-k', rows, kvHeads, c.geometry.headDim, when), appendOf(c, 'append-v', rows, kvHeads, c.geometry.headDim, when)];
}

/** Writing of latents that are complete, or of the rows of all their loops on the fast path. */
function closingOps(p: Pass, chunk: Chunk, kvHeads: number): Op[] {
  const { c, block } = p;
  const rows = keptOf(p, chunk);
  if (block.name !== 'core' || !isLatent(c.codec) || rows === 0) return [];
  const { kind, rankK = 0, rankV = 0 } = c.codec;
  const d = c.geometry.headDim;
  const when = closingTime(c, block);
  if (c.path === 'fast') {
    const loops = CODECS[kind].loopAxis ? block.loops : 1;
    const [groups, width] = encoders(c, kvHeads);
    return [
      perHead('restore-k', groups, rows, rankK, loops * width, when),
      op('rope-write', 'rope', c.geometry.rope.pairing, { rows, heads: loops * kvHeads, headDim: d }, when),
      appendOf(c, 'append-k', rows, loops * kvHeads, d, when),
      perHead('restore-v', groups, rows, rankV, loops * width, when),
      appendOf(c, 'append-v', rows, loops * kvHeads, d, when),
    ];
  }
  const latents = kind === 'lla' ? kvHeads : 1;
  const branch = branchWidth(c, block);
  return [appendOf(c, 'append-k', rows, latents, rankK, when), appendOf(c, 'append-v', rows, latents, rankV, when), ...(branch > 0 ? [appendOf(c, 'append-branch', rows, c.branch.perHead ? kvHeads : 1, branch, when)] : [])];
}
