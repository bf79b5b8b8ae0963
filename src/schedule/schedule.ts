/**
 * The operations of one decode step, in order. The cost model prices this list, the benchmarks measure the shapes that
 * it contains and the decoder executes it.
 */
import { CODECS, isLatent } from '../codecs/registry.js';
import { QUANT_STORAGE } from '../codecs/uncompressed.js';
import type { Branch, Codec, Path, StorageChoice } from '../codecs/codec.js';
import { allocatedTokens, keptTokens, type Eviction } from '../eviction/policy.js';
import { blocksOf, type Geometry, type LayerBlock } from '../geometry/geometry.js';
import { blockPlan } from './block-absorbed.js';
import { storedBytes, type KernelName, type Shape, type Storage } from './kernels.js';

/** What is decoded, and how. */
export interface Configuration {
  readonly geometry: Geometry;
  readonly codec: Codec;
  readonly path: Path;
  /** `reconstruct` only: rebuild K and V into memory first instead of inside attention. */
  readonly materialised: boolean;
  readonly choice: StorageChoice;
  readonly branch: Branch;
  readonly eviction: Eviction | null;
  /** GPUs that share heads, MLP and vocabulary (tensor parallel). */
  readonly gpus: number;
  /** Workgroups that split-KV attention aims for; it splits the context until there are as many. */
  readonly targetWorkgroups: number;
  /** Largest buffer that one call can bind, in bytes: weights and caches beyond it are taken in parts. Infinity: no limit. */
  readonly bindingBytes: number;
}

/** Which iterations of its stage an operation runs in. */
export type When =
  | 'always'
  /** Only in the last loop, when a loop-axis latent is complete. */
  | 'last-loop'
  /** Only in layers whose cache is not shared with the previous one (cla). */
  | 'owning-layer';

export interface Op {
  readonly label: string;
  readonly kernel: KernelName;
  readonly variant: string;
  readonly shape: Shape;
  readonly when: When;
  /** Times that it runs in a row, on further parts of what one call cannot bind. */
  readonly repeat: number;
}

/** `once`: run in order. `stack`: for every loop, `loopStart`, then `layer` for every layer, then `loopEnd`. */
export type Stage =
  | { readonly kind: 'once'; readonly ops: readonly Op[] }
  | { readonly kind: 'stack'; readonly block: LayerBlock; readonly loopStart: readonly Op[]; readonly layer: readonly Op[]; readonly loopEnd: readonly Op[] };

export interface Schedule {
  readonly stages: readonly Stage[];
  /** All-reduces between GPUs: none on one GPU. */
  readonly collectives: { readonly calls: number; readonly bytesEach: number };
}

/** Fewest tokens in a split: below that the merge costs more than the parallelism brings. */
export const MIN_SPLIT_TOKENS = 256;
/** Splits are capped so that the merge stays a small kernel. */
export const MAX_SPLITS = 256;

/** Into how many parts the context is split when `rows` (sequences × KV heads) workgroups exist already. */
export function splitCount(context: number, rows: number, targetWorkgroups: number): number {
  const most = Math.min(MAX_SPLITS, Math.max(1, Math.ceil(context / MIN_SPLIT_TOKENS)));
  return Math.max(1, Math.min(most, Math.ceil(targetWorkgroups / rows)));
}

/** Heads of one GPU under tensor parallelism; too few KV heads are replicated. */
export const headsPerGpu = (heads: number, gpus: number): number => Math.max(1, Math.ceil(heads / gpus));

const op = (label: string, kernel: KernelName, variant: string, shape: Shape, when: When = 'always', repeat = 1): Op => ({ label, kernel, variant, shape, when, repeat });

/** Splits `count` items of `bytesEach` into equal calls that each fit a binding, the rest in one more. */
function inParts(count: number, bytesEach: number, bindingBytes: number): { size: number; repeat: number }[] {
  const parts = Math.min(count, Math.max(1, Math.ceil((count * bytesEach) / bindingBytes)));
  const size = Math.ceil(count / parts);
  const whole = Math.floor(count / size);
  const rest = count - whole * size;
  return [{ size, repeat: whole }, ...(rest > 0 ? [{ size: rest, repeat: 1 }] : [])];
}

/**
 * Lists the operations of one decode step.
 * @param batch sequences decoded together (≥ 1)
 * @param context tokens of each sequence before this step, evicted ones included (≥ 1)
 */
export function schedule(c: Configuration, batch: number, context: number): Schedule {
  const g = c.geometry;
  const vocab = Math.ceil(g.vocab / c.gpus);
  const stages: Stage[] = [{ kind: 'once', ops: [op('embedding', 'embed', 'f16', { rows: batch, width: g.hidden })] }];
  for (const block of blocksOf(g)) {
    const core = block.name === 'core';
    stages.push({
      kind: 'stack',
      block,
      loopStart: core && g.adapter ? [...project(c, 'adapter', batch, 2 * g.hidden, Math.ceil(g.hidden / c.gpus))] : [],
      layer: layerOps(c, block, batch, context),
      loopEnd: core ? loopEnd(c, batch) : [],
    });
  }
  const tail = [...project(c, 'lm-head', batch, g.hidden, vocab), op('sample', 'sample', 'greedy', { rows: batch, vocab })];
  if (!g.normAfterEachLoop) tail.unshift(op('final-norm', 'rmsnorm', 'norm', { rows: batch, width: g.hidden }));
  stages.push({ kind: 'once', ops: tail });
  const layerRuns = blocksOf(g).reduce((sum, b) => sum + b.layers * b.loops, 0);
  return { stages, collectives: { calls: c.gpus > 1 ? 2 * layerRuns + 1 : 0, bytesEach: batch * g.hidden * 4 } };
}

/** A projection; weights that no binding holds are taken by columns. */
const project = (c: Configuration, label: string, m: number, k: number, n: number): Op[] =>
  inParts(n, 2 * k, c.bindingBytes).map(({ size, repeat }) => op(label, 'matmul', 'f16', { groups: 1, m, k, n: size }, 'always', repeat));
const perHead = (label: string, groups: number, m: number, k: number, n: number, when: When = 'always'): Op => op(label, 'matmul', 'f16', { groups, m, k, n }, when);

function loopEnd(c: Configuration, batch: number): Op[] {
  const g = c.geometry;
  const ops: Op[] = [];
  if (g.normAfterEachLoop) ops.push(op('loop-norm', 'rmsnorm', 'norm', { rows: batch, width: g.hidden }));
  if (g.exitGate) ops.push(...project(c, 'exit-gate', batch, g.hidden, 1));
  return ops;
}

function layerOps(c: Configuration, block: LayerBlock, batch: number, context: number): Op[] {
  const g = c.geometry;
  const heads = headsPerGpu(g.heads, c.gpus);
  const kvHeads = headsPerGpu(g.kvHeads, c.gpus);
  const mlp = Math.ceil(g.mlpHidden / c.gpus);
  const norm = (label: string, variant: string) => op(label, 'rmsnorm', variant, { rows: batch, width: g.hidden });
  const afterBranch = g.normsPerLayer === 4 ? 'norm-add' : 'add';
  const branch = block.name === 'core' && c.path === 'absorbed' ? c.branch.width * (heads + (c.branch.perHead ? kvHeads : 1)) : 0;
  return [
    norm('attention-norm', 'norm'),
    ...project(c, 'qkv', batch, g.hidden, (heads + 2 * kvHeads) * g.headDim + branch),
    op('rope', 'rope', g.rope.pairing, { rows: batch, heads: heads + kvHeads, headDim: g.headDim }),
    ...cacheOps(c, block, batch, heads, kvHeads),
    ...attentionOps(c, block, batch, context, heads, kvHeads),
    ...project(c, 'attention-out', batch, heads * g.headDim, g.hidden),
    norm('attention-residual', afterBranch),
    norm('mlp-norm', 'norm'),
    ...project(c, 'gate-up', batch, g.hidden, 2 * mlp),
    op('swiglu', 'swiglu', 'f32', { rows: batch, width: mlp }),
    ...project(c, 'down', batch, mlp, g.hidden),
    norm('mlp-residual', afterBranch),
    ...evictOps(c, block, batch, context, kvHeads),
  ];
}

const storageOf = (c: Configuration): Storage => (c.codec.kind === 'kv-quant' ? QUANT_STORAGE[c.codec.bits ?? 8] : c.choice.storage);

/** Encoding and writing the new token's cache entry. Encoding is linear: loops accumulate, the last one writes. */
function cacheOps(c: Configuration, block: LayerBlock, batch: number, heads: number, kvHeads: number): Op[] {
  const g = c.geometry;
  const d = g.headDim;
  const storage = storageOf(c);
  const { kind, rankK = 0, rankV = 0 } = c.codec;
  const append = (label: string, width: number, when: When = 'always') => op(label, 'append', storage, { rows: batch, width }, when);
  if (block.name !== 'core' || !isLatent(c.codec)) {
    const when: When = block.name !== 'core' ? 'always' : kind === 'final-loop' ? 'last-loop' : kind === 'cla' ? 'owning-layer' : 'always';
    return [append('append', 2 * kvHeads * d, when)];
  }
  const loopAxis = CODECS[kind].loopAxis;
  const when: When = loopAxis ? 'last-loop' : 'always';
  const groups = kind === 'lla' ? kvHeads : 1;
  const width = kind === 'lla' ? d : kvHeads * d;
  const ops = [perHead('encode-k', groups, batch, width, rankK), perHead('encode-v', groups, batch, width, rankV)];
  if (c.path === 'fast') {
    const loops = loopAxis ? block.loops : 1;
    return [
      ...ops,
      perHead('reconstruct-k', groups, batch, rankK, loops * width, when),
      perHead('reconstruct-v', groups, batch, rankV, loops * width, when),
      op('rope-write', 'rope', g.rope.pairing, { rows: batch, heads: loops * kvHeads, headDim: d }, when),
      append('append', 2 * loops * kvHeads * d, when),
    ];
  }
  const branch = c.path === 'absorbed' ? c.branch.width * (c.branch.perHead ? kvHeads : 1) : 0;
  if (c.path === 'absorbed') ops.push(op('rope-branch', 'rope', g.rope.pairing, { rows: batch, heads: heads + (c.branch.perHead ? kvHeads : 1), headDim: c.branch.width }));
  return [...ops, append('append', groups * (rankK + rankV) + branch, when)];
}

/** Attention over the cached tokens, the merge, and the value up-projection of paths that read V latents. */
function attentionOps(c: Configuration, block: LayerBlock, batch: number, context: number, heads: number, kvHeads: number): Op[] {
  const g = c.geometry;
  const d = g.headDim;
  const storage = storageOf(c);
  const n = keptTokens(c.eviction, context);
  const { kind, rankK = 0, rankV = 0 } = c.codec;
  const group = heads / kvHeads;
  /** Sequences whose caches (`rowsEach` rows of `width` scalars a token) one binding holds, and how often. */
  const partsOver = (rowsEach: number, width: number, type: Storage) => inParts(batch, n * rowsEach * storedBytes(type, width), c.bindingBytes);
  /** Attention and its merge, part by part: `cacheRows` rows a sequence are stored, `rowsEach` are shared out to workgroups. */
  const attendAndMerge = (kernel: KernelName, type: Storage, cacheRows: number, rowsEach: number, cacheWidth: number, width: number, shape: Shape): Op[] =>
    partsOver(cacheRows, cacheWidth, type).flatMap(({ size, repeat }) => {
      const splits = splitCount(n, size * rowsEach, c.targetWorkgroups);
      return [
        op('attend', kernel, type, { sequences: size, context: n, ...shape, splits }, 'always', repeat),
        // The new token's exact K and V are one more split.
        op('merge', 'attend_merge', 'f32', { rows: size * heads, splits: splits + 1, width }, 'always', repeat),
      ];
    });
  const fullAttention = (type: Storage) => attendAndMerge('attend', type, kvHeads, kvHeads, d, d, { kvHeads, group, keyWidth: d, valueWidth: d, branchWidth: 0, branchHeads: 0 });

  if (block.name !== 'core' || !isLatent(c.codec) || c.path === 'fast' || c.path === 'full') return fullAttention(storage);
  const latentHeads = kind === 'lla' ? kvHeads : 1;
  const widest = Math.max(rankK, rankV);
  const valueUp = perHead('value-up', heads, batch, rankV, d);
  if (c.path === 'absorbed') {
    const branchHeads = c.branch.perHead ? kvHeads : 1;
    const shape = { kvHeads: latentHeads, group: heads / latentHeads, keyWidth: rankK, valueWidth: rankV, branchWidth: c.branch.width, branchHeads };
    return [perHead('query-absorb', heads, batch, d, rankK), ...attendAndMerge('attend', storage, latentHeads, latentHeads, widest, rankV, shape), valueUp];
  }
  if (c.path === 'reconstruct' && c.materialised) {
    const rebuild = (label: string, variant: string, rank: number) =>
      partsOver(kvHeads, d, 'f16').map(({ size, repeat }) => op(label, 'rebuild', variant, { sequences: size, kvHeads, latentHeads, context: n, rank, headDim: d }, 'always', repeat));
    return [...rebuild('rebuild-k', 'rope', rankK), ...rebuild('rebuild-v', 'plain', rankV), ...fullAttention('f16')];
  }
  const latent = { kvHeads, latentHeads, group, rankK, rankV, headDim: d };
  const attend =
    c.path === 'reconstruct'
      ? attendAndMerge('attend_rebuild', storage, latentHeads, kvHeads, widest, rankV, latent)
      : attendAndMerge('attend_block_absorbed', storage, latentHeads, kvHeads, widest, rankV, { ...latent, macsPerRank: blockPlan(g.rope.theta, d).macsPerRank });
  return [...attend, valueUp];
}

/** H2O's bookkeeping after the step. StreamingLLM overwrites the oldest slot of a ring: nothing to do. */
function evictOps(c: Configuration, block: LayerBlock, batch: number, context: number, kvHeads: number): Op[] {
  if (c.eviction?.policy !== 'h2o') return [];
  const { kind } = c.codec;
  const core = block.name === 'core';
  const shared = core && c.path !== 'fast' && (kind === 'lla-2d' || kind === 'mla-head');
  const pooled = core && c.path !== 'fast' && (kind === 'lla' || kind === 'lla-2d' || kind === 'final-loop');
  const shape = { rows: batch * (shared ? 1 : kvHeads), context: allocatedTokens(c.eviction, context) };
  return [op('evict', 'evict', 'h2o', shape, pooled ? 'last-loop' : core && kind === 'cla' ? 'owning-layer' : 'always')];
}

/** How often an operation of a stage's `layer` list runs in a step. */
export function layerCalls(c: Configuration, block: LayerBlock, when: When): number {
  if (when === 'last-loop') return block.layers;
  if (when === 'owning-layer') return (block.layers / (c.codec.shareLayers ?? 1)) * block.loops;
  return block.layers * block.loops;
}

/** Visits every operation with the number of times that it runs in one step. */
export function forEachOp(c: Configuration, s: Schedule, visit: (op: Op, calls: number) => void): void {
  for (const stage of s.stages) {
    if (stage.kind === 'once') {
      for (const o of stage.ops) visit(o, o.repeat);
      continue;
    }
    for (const o of stage.loopStart) visit(o, stage.block.loops * o.repeat);
    for (const o of stage.layer) visit(o, layerCalls(c, stage.block, o.when) * o.repeat);
    for (const o of stage.loopEnd) visit(o, stage.block.loops * o.repeat);
  }
}
