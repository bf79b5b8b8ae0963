/**
 * The operations of the `accumulated` prefill (cost/memory.ts, prefillPeaks): layer by layer over the whole prompt, its products and
 * attention in chunks of tokens, with the K and V of one (layer, loop) in 16 bits (32 where the cache has 32). Pass 1 is the exact
 * forward; it writes the cache, latents after their loops have accumulated. Pass 2 runs the prompt again on what the cache holds,
 * which is what decoding continues: latents are read back and reconstructed. Codecs without latents need no pass 2.
 * The kinds that capture are made of the same parts (prefill-captured.ts).
 */
import { CODECS, isLatent } from '../codecs/registry.js';
import { segmentsOf, keptTokens } from '../eviction/policy.js';
import { blocksOf, type LayerBlock } from '../geometry/geometry.js';
import { headsPerGpu, op, perHead, project, storageOf, type Configuration, type Op, type When } from './configuration.js';
import { branchKeyTime, branchWidth, closingTime, readsLatents } from './eviction-ops.js';
import { groupOf, isQuantised } from './kernels.js';
import { exchanges, type Collective, type Schedule, type Stage } from './schedule.js';

/** Prompt tokens that are worked on at once. */
export const PREFILL_CHUNK_TOKENS = 2048;

/** Element type of the rows that attention of a prompt reads: that of the cache, 16 bits where it is quantised. */
export const prefillRowType = (c: Configuration): 'f16' | 'f32' => (storageOf(c) === 'f32' ? 'f32' : 'f16');

/**
 * True where attention of a prompt reads exact rows of its own, kept for one (layer, loop): latents, quantised rows and rows of the last
 * loop alone are not what a prompt attends to. Elsewhere it reads the cache.
 */
export const keepsRows = (c: Configuration): boolean => isLatent(c.codec) || c.codec.kind === 'final-loop' || isQuantised(storageOf(c));

/** Kinds that keep the rows of every layer and loop that pass 1 attends to, and encode latents from these; see prefill-captured.ts. */
export type CapturingKind = 'one-shot' | 'by-layer';

/** A run of a prompt's tokens. */
export interface Chunk {
  readonly from: number;
  readonly tokens: number;
}

export const chunksOf = (tokens: number, each: number): Chunk[] =>
  Array.from({ length: Math.ceil(tokens / each) }, (_, i) => ({ from: i * each, tokens: Math.min(each, tokens - i * each) }));

/**
 * Lists the operations that prefill `batch` prompts of `promptTokens` each (both ≥ 1). Under StreamingLLM only the tokens
 * that stay are encoded and written; H2O's choice among them is not listed: it has no kernel for whole prompts.
 */
export function prefillSchedule(c: Configuration, promptTokens: number, batch: number, chunkTokens = PREFILL_CHUNK_TOKENS): Schedule {
  const chunks = chunksOf(promptTokens, chunkTokens);
  const passes = isLatent(c.codec) ? [false, true] : [false];
  const stages = passes.flatMap((again) => passStages({ c, tokens: promptTokens, batch, again }, chunks, (p) => layerOps(p, chunks)));
  return { stages: [...stages, headStage(c, batch)], collectives: prefillCollectives(c, promptTokens, batch, passes.length) };
}

/** One pass of the network, without its head. @param layer the operations of a layer of each block */
export function passStages(of: Omit<Pass, 'block'>, chunks: readonly Chunk[], layer: (p: Pass) => Op[]): Stage[] {
  const { c, tokens, batch } = of;
  const g = c.geometry;
  const stages: Stage[] = [{ kind: 'once', ops: [op('embedding', 'embed', 'f16', { rows: batch * tokens, width: g.hidden })] }];
  for (const block of blocksOf(g)) {
    const core = block.name === 'core';
    const adapter = core && g.adapter ? over(chunks, (chunk) => project(c, 'adapter', batch * chunk.tokens, 2 * g.hidden, Math.ceil(g.hidden / c.gpus))) : [];
    const loopNorm = core && g.normAfterEachLoop ? [op('loop-norm', 'rmsnorm', 'norm', { rows: batch * tokens, width: g.hidden })] : [];
    stages.push({ kind: 'stack', block, loopStart: adapter, layer: layer({ ...of, block }), loopEnd: loopNorm });
  }
  return stages;
}

/** Only the last token's logits are wanted, of the last pass. */
export function headStage(c: Configuration, batch: number): Stage {
  const g = c.geometry;
  const head = [...project(c, 'lm-head', batch, g.hidden, Math.ceil(g.vocab / c.gpus)), op('sample', 'sample', 'greedy', { rows: batch, vocab: g.vocab })];
  if (!g.normAfterEachLoop) head.unshift(op('final-norm', 'rmsnorm', 'norm', { rows: batch, width: g.hidden }));
  return { kind: 'once', ops: head };
}

export const prefillCollectives = (c: Configuration, tokens: number, batch: number, passes: number): readonly Collective[] =>
  exchanges(c, { rows: batch * tokens, encoded: batch * keptTokens(c.eviction, tokens), logits: batch, mass: 0, passes });

/** Operations of every chunk, one chunk after the other. */
export const over = (chunks: readonly Chunk[], list: (chunk: Chunk) => readonly Op[]): Op[] => chunks.flatMap((chunk) => list(chunk).map((o) => ({ ...o, from: chunk.from })));

/** A layer of one pass. */
export interface Pass {
  readonly c: Configuration;
  readonly block: LayerBlock;
  readonly tokens: number;
  readonly batch: number;
  /** Pass 2: what attention reads comes from the cache. */
  readonly again: boolean;
  /** Latents are encoded from captures, not as each loop's share comes. */
  readonly captures?: CapturingKind;
}

/** Element type of the rows that attention reads: `one-shot` keeps everything in 32 bits. */
export const keptRowType = (c: Configuration, captures?: CapturingKind): 'f16' | 'f32' => (captures === 'one-shot' ? 'f32' : prefillRowType(c));

/** True where the rows that attention reads are there before the pass: `one-shot` has reconstructed them all. */
const readsReconstructions = ({ block, again, captures }: Pass): boolean => again && captures === 'one-shot' && block.name === 'core';

/** @param encoding operations between attention and what follows it */
export function layerOps(p: Pass, chunks: readonly Chunk[], encoding: readonly Op[] = []): Op[] {
  const { c, batch, tokens } = p;
  const g = c.geometry;
  const mlp = Math.ceil(g.mlpHidden / c.gpus);
  const norm = (label: string, variant: string) => op(label, 'rmsnorm', variant, { rows: batch * tokens, width: g.hidden });
  const afterBranch = g.normsPerLayer === 4 ? 'norm-add' : 'add';
  return [
    norm('attention-norm', 'norm'),
    ...over(chunks, (chunk) => attentionOps(p, chunk)),
    ...encoding,
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
  const type = keptRowType(c, p.captures);
  const there = readsReconstructions(p);
  const keyed = there || (again && !readsLatents(c, block)) ? 0 : kvHeads;
  return [
    ...(shares ? [...project(c, 'q', rows, g.hidden, heads * d), ...project(c, 'kv', rows, g.hidden, 2 * kvHeads * d, owning)] : project(c, 'qkv', rows, g.hidden, (heads + 2 * kvHeads) * d + branch * heads)),
    ...(branch > 0 && !again ? project(c, 'branch-key', rows, g.hidden, branch * branchHeads, branchKeyTime(c)) : []),
    ...(again ? readBackOps(p, rows) : encodeOps(p, chunk)),
    ...(branch > 0 ? [rotate('rope-branch', heads, branch), ...(again ? [] : [rotate('rope-branch-key', branchHeads, branch, branchKeyTime(c))])]
      : shares ? [rotate('rope', heads, d), rotate('rope-k', kvHeads, d, owning)] : [rotate('rope', heads + keyed, d)]),
    ...(again ? [] : appendOps(p, chunk, kvHeads)),
    ...(keepsRows(c) && !there ? [keepOp(p, 'keep-k', rows, owning), keepOp(p, 'keep-v', rows, owning)] : []),
    op('attend', 'attend_prefill', type, { sequences: batch, kvHeads, group: heads / kvHeads, queries: chunk.tokens, context: chunk.from, keyWidth: d + branch, valueWidth: d }),
    ...(again ? [] : closingOps(p, chunk)),
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

export type Axis = 'k' | 'v';
export const AXES: readonly Axis[] = ['k', 'v'];
const rankOf = ({ codec }: Configuration, axis: Axis): number => (axis === 'k' ? codec.rankK : codec.rankV) ?? 0;
const kvHeadsOf = (c: Configuration): number => headsPerGpu(c.geometry.kvHeads, c.gpus);
/** Latent rows of a token. */
const latentsOf = (c: Configuration): number => (c.codec.kind === 'lla' ? kvHeadsOf(c) : 1);

/** Rows of full width as attention reads them, in memory of their own. */
export const keepOp = ({ c, captures }: Pass, label: string, rows: number, when: When = 'always'): Op =>
  op(label, 'append', keptRowType(c, captures), { rows, heads: kvHeadsOf(c), width: c.geometry.headDim, groupSize: 0 }, when);

/** Encoding of exact keys or values of one loop. */
export function encodeOp(c: Configuration, axis: Axis, rows: number): Op {
  const [groups, width] = encoders(c, kvHeadsOf(c));
  return perHead(`encode-${axis}`, groups, rows, width, rankOf(c, axis));
}

function encodeOps(p: Pass, chunk: Chunk): Op[] {
  const rows = keptOf(p, chunk);
  if (p.block.name !== 'core' || !isLatent(p.c.codec) || p.captures || rows === 0) return [];
  return AXES.map((axis) => encodeOp(p.c, axis, rows));
}

const loadOp = (c: Configuration, label: string, rows: number, heads: number, width: number, when: When = 'always'): Op =>
  op(label, 'load', storageOf(c), { rows, heads, width, groupSize: groupOf(storageOf(c), c.choice.groupSize) }, when);

/** Reading rows of full width, or latents, back from the cache. */
export const loadRows = (c: Configuration, axis: Axis, rows: number): Op => loadOp(c, `load-${axis}`, rows, kvHeadsOf(c), c.geometry.headDim);
export const loadLatents = (c: Configuration, axis: Axis, rows: number): Op => loadOp(c, `load-${axis}`, rows, latentsOf(c), rankOf(c, axis));

/** Rows of one loop from latents. */
export function reconstructOp(c: Configuration, axis: Axis, rows: number): Op {
  const [groups, width] = encoders(c, kvHeadsOf(c));
  return perHead(`reconstruct-${axis}`, groups, rows, rankOf(c, axis), width);
}

/** Rows of the cache as attention reads them: latents reconstructed in one loop, or rows of full width as they are. */
function readBackOps(p: Pass, rows: number): Op[] {
  const { c, block } = p;
  const branch = branchWidth(c, block);
  const branchKeys = branch > 0 ? [loadOp(c, 'load-branch', rows, c.branch.perHead ? kvHeadsOf(c) : 1, branch, branchKeyTime(c))] : [];
  if (readsReconstructions(p)) return branchKeys;
  if (!readsLatents(c, block)) return AXES.map((axis) => loadRows(c, axis, rows));
  return [...AXES.flatMap((axis) => [loadLatents(c, axis, rows), reconstructOp(c, axis, rows)]), ...branchKeys];
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

/** What ends a chunk's attention: the rows of the cache that are complete. */
function closingOps(p: Pass, chunk: Chunk): Op[] {
  const rows = keptOf(p, chunk);
  if (p.block.name !== 'core' || !isLatent(p.c.codec) || rows === 0) return [];
  return [...(p.captures ? [] : AXES.flatMap((axis) => writeLatentOps(p, axis, rows))), ...writeBranchOps(p, rows)];
}

/** Writing of latents that are complete, or of the rows of all their loops on the fast path. */
export function writeLatentOps({ c, block }: Pass, axis: Axis, rows: number): Op[] {
  const d = c.geometry.headDim;
  const when = closingTime(c, block);
  if (c.path !== 'fast') return [appendOf(c, `append-${axis}`, rows, latentsOf(c), rankOf(c, axis), when)];
  const loops = CODECS[c.codec.kind].loopAxis ? block.loops : 1;
  const [groups, width] = encoders(c, kvHeadsOf(c));
  return [
    perHead(`restore-${axis}`, groups, rows, rankOf(c, axis), loops * width, when),
    ...(axis === 'k' ? [op('rope-write', 'rope', c.geometry.rope.pairing, { rows, heads: loops * kvHeadsOf(c), headDim: d }, when)] : []),
    appendOf(c, `append-${axis}`, rows, loops * kvHeadsOf(c), d, when),
  ];
}

/** Writing of the rotary branch's keys. */
function writeBranchOps({ c, block }: Pass, rows: number): Op[] {
  const branch = branchWidth(c, block);
  return branch > 0 ? [appendOf(c, 'append-branch', rows, c.branch.perHead ? kvHeadsOf(c) : 1, branch, closingTime(c, block))] : [];
}
