/**
 * Memory of a serving process, exactly: what the decoder allocates is what is counted here. All sizes in bytes, of one
 * GPU; under tensor parallelism each GPU holds its share of what divides and a copy of what does not.
 */
import { codecMeans, CODECS, isLatent, layoutOf, paddedCodecParameters } from '../codecs/registry.js';
import { bytesPerToken, pagedTokens, TILE_TOKENS, type CacheLayout } from '../codecs/layout.js';
import { allocatedTokens, evictionStateBytesPerToken, keptTokens, pinnedSlots } from '../eviction/policy.js';
import { layerParameters, parameterCount, type Geometry } from '../geometry/geometry.js';
import { blockPlan } from '../schedule/block-absorbed.js';
import { blockBasisScalars } from '../kernels/block_basis/terms.js';
import { blockComponents } from '../kernels/block_vectors/terms.js';
import { storedBytes } from '../kernels/spec.js';
import {
  keepsRows,
  keptRowType,
  massRows,
  PREFILL_CHUNK_TOKENS,
  rowsOfRuns,
  setsRowsAside,
  storesRun,
  type CapturingKind,
} from '../schedule/prefill.js';
import { spansLoops, storageOf } from '../schedule/configuration.js';
import { headsPerGpu, type Configuration } from '../schedule/schedule.js';

export const WEIGHT_BYTES = { bf16: 2, f16: 2, f32: 4 } as const;
/** Codec matrices are kept in 16 bits, their means in F32. */
const CODEC_BYTES = 2;
/** Activations and accumulators are f32. */
const F32 = 4;
export const PREFILL_KINDS = ['one-shot', 'by-layer', 'accumulated', 'chunked'] as const;
/** How a prompt's exact K/V become latents; see prefillPeaks. */
export type PrefillKind = (typeof PREFILL_KINDS)[number];

/** Everything about a configuration's memory that does not depend on the batch. */
export interface MemoryModel {
  readonly weightsBytes: number;
  readonly codecBytes: number;
  readonly kvBytesPerToken: number;
  readonly kvBytesPerSequence: number;
  readonly inFlightBytesPerSequence: number;
  readonly evictionBytesPerSequence: number;
  readonly kvBytesAt1M: number;
  /** Workspace is `fixed + perSequence · batch`, so that memory never shrinks when the batch grows. */
  readonly workspaceFixedBytes: number;
  readonly workspaceBytesPerSequence: number;
}

/** The layout of one GPU: heads divide (or replicate, down to one), everything else is whole. */
export function layoutPerGpu(c: Configuration): CacheLayout {
  const layout = layoutOf(c.geometry, c.codec, c.path, c.choice, c.branch);
  return c.gpus === 1 ? layout : layout.map((t) => ({ ...t, heads: headsPerGpu(t.heads, c.gpus) }));
}

/**
 * Weights of one GPU: projections and embeddings divide, norms and the adapter's bias-free rows are small and whole.
 */
export function weightBytes(g: Geometry, gpus: number): number {
  const bytes = WEIGHT_BYTES[g.weightType];
  const total = parameterCount(g);
  if (gpus === 1) return total * bytes;
  const layers = g.preludeLayers + g.layers + g.codaLayers;
  const kvWhole = g.hidden * g.headDim * 2 * g.kvHeads;
  const kvShare = g.hidden * g.headDim * 2 * headsPerGpu(g.kvHeads, gpus);
  const whole = g.normsPerLayer * g.hidden + g.extraParametersPerLayer;
  const layer = (layerParameters(g) - whole - kvWhole) / gpus + kvShare + whole;
  const outside = total - layers * layerParameters(g);
  return Math.ceil((layers * layer + outside / gpus + g.hidden) * bytes);
}

/**
 * Weights that a GPU holds beyond those of the checkpoint: norms and biases are kept in f32, the exit gate's single
 * column is padded to a pair and has no bias (it never fires); layers that read another layer's cache (cla) need no K
 * and V projections.
 */
function heldBeyondCheckpoint(c: Configuration): number {
  const g = c.geometry;
  const bytes = WEIGHT_BYTES[g.weightType];
  const layers = g.preludeLayers + g.layers + g.codaLayers;
  const kept = (g.normsPerLayer * g.hidden + g.extraParametersPerLayer) * layers + g.hidden;
  const unread =
    c.codec.kind === 'cla'
      ? 2 * headsPerGpu(g.kvHeads, c.gpus) * g.headDim * g.hidden * (g.layers - g.layers / (c.codec.shareLayers ?? 1))
      : 0;
  return kept * (F32 - bytes) + (g.exitGate ? (g.hidden - 1) * bytes : 0) - unread * bytes;
}

/**
 * Codec parameters of one GPU. Per-head matrices divide with the KV heads; matrices of a shared latent are replicated
 * on the latent side and divided on the head side. Rows of an odd rank are padded by one; a constant a latent centres
 * what is encoded.
 */
function codecBytesPerGpu(c: Configuration): number {
  const total =
    paddedCodecParameters(c.geometry, c.codec, c.path, c.branch, c.path === 'reconstruct' && c.materialised) *
      CODEC_BYTES +
    (codecMeans(c.geometry, c.codec) + centreScalars(c)) * F32;
  return Math.ceil((total * headsPerGpu(c.geometry.kvHeads, c.gpus)) / c.geometry.kvHeads);
}

/** −μ·W_down of every latent, added as it is appended; `fast` decodes instead. */
function centreScalars(c: Configuration): number {
  if (!isLatent(c.codec) || c.path === 'fast') return 0;
  const { rankK = 0, rankV = 0, kind } = c.codec;
  const latents = (kind === 'lla' ? c.geometry.kvHeads : 1) * (CODECS[kind].loopAxis ? 1 : c.geometry.loops);
  return (rankK + rankV) * latents * c.geometry.layers;
}

/** Builds the memory model of a configuration at a context length (tokens). */
export function memoryModel(c: Configuration, context: number, pageTokens: number): MemoryModel {
  const g = c.geometry;
  const layout = layoutPerGpu(c);
  const perToken = bytesPerToken(layout);
  const allocated = pagedTokens(allocatedTokens(c.eviction, context), pageTokens);
  return {
    weightsBytes: weightBytes(g, c.gpus) + heldBeyondCheckpoint(c),
    codecBytes: codecBytesPerGpu(c),
    kvBytesPerToken: perToken,
    kvBytesPerSequence: Math.ceil(perToken * allocated),
    inFlightBytesPerSequence: inFlightScalars(c) * F32,
    evictionBytesPerSequence: evictionStateBytesPerToken(c.eviction, layout) * allocated,
    kvBytesAt1M: Math.ceil(perToken * keptTokens(c.eviction, 2 ** 20)),
    workspaceFixedBytes: workspaceFixed(c),
    workspaceBytesPerSequence: workspacePerSequence(c, allocated),
  };
}

/** Latent scalars of one layer's new token: one row a KV head, or one for all. */
function latentScalars(c: Configuration): number {
  if (!isLatent(c.codec)) return 0;
  const { rankK = 0, rankV = 0 } = c.codec;
  return (rankK + rankV) * (c.codec.kind === 'lla' ? headsPerGpu(c.geometry.kvHeads, c.gpus) : 1);
}

/**
 * Scalars of the running latent accumulators of one sequence: a loop-axis latent is complete only after the last loop,
 * but encoding is linear, c = Σ_t (x_t − μ_t)·W_down,t, so one accumulator a layer and head is enough. A latent that is
 * complete within its layer (mla-head, one loop) needs none: it is an activation. On the absorbed path the rotary key,
 * which the loops share, is kept beside.
 */
export const inFlightScalars = (c: Configuration): number =>
  spansLoops(c) ? (latentScalars(c) + branchKeyScalars(c)) * c.geometry.layers : 0;

/** Rotary keys of one layer's new token: made in the first loop, scored in each, cached in the last. */
const branchKeyScalars = (c: Configuration): number =>
  c.path === 'absorbed' ? c.branch.width * (c.branch.perHead ? headsPerGpu(c.geometry.kvHeads, c.gpus) : 1) : 0;

/** Width of the rows that attention's split partials hold. */
function partialWidth(c: Configuration): number {
  return Math.max(c.geometry.headDim, mergesLatents(c) ? (c.codec.rankV ?? 0) : 0);
}

/** Query heads of one GPU. */
const heads = (c: Configuration): number => headsPerGpu(c.geometry.heads, c.gpus);

/**
 * Split-KV partials beyond one a query: the split count times the rows never exceeds the target by more than one split
 * a row, so `target` extra partial rows a group are enough for every batch.
 */
function workspaceFixed(c: Configuration): number {
  const group = Math.ceil(c.geometry.heads / Math.min(c.geometry.kvHeads, c.geometry.heads));
  const latentGroup = c.path === 'absorbed' && c.codec.kind !== 'lla' ? heads(c) : group;
  return c.targetWorkgroups * latentGroup * (partialWidth(c) + 2) * F32;
}

/**
 * Queries are kept twice where StreamingLLM's sinks are scored with a second rotation: rows of full width, or a rotary
 * branch.
 */
function querySets(c: Configuration): 1 | 2 {
  if (c.eviction?.policy !== 'streaming') return 1;
  const { preludeLayers, codaLayers } = c.geometry;
  return !isLatent(c.codec) || c.path === 'fast' || c.path === 'absorbed' || preludeLayers + codaLayers > 0 ? 2 : 1;
}

/** True where attention reads latents and its rows are brought to full width after the merge. */
const mergesLatents = (c: Configuration): boolean =>
  isLatent(c.codec) && c.path !== 'fast' && !(c.path === 'reconstruct' && c.materialised);

/**
 * Activations, logits and partials of a sequence; on a materialising path one layer's rebuilt K and V, on the fast one
 * the rows of every loop that the last one writes, under H2O the scores of one layer. The buffers are those of
 * decoder/gpu/machine.ts.
 * @param capacity slots of a cached row, whole pages
 */
function workspacePerSequence(c: Configuration, capacity: number): number {
  const g = c.geometry;
  const kvHeads = headsPerGpu(g.kvHeads, c.gpus);
  const mlp = Math.ceil(g.mlpHidden / c.gpus);
  const { rankK = 0, rankV = 0 } = c.codec;
  const absorbed = c.path === 'absorbed';
  const queryWidth = Math.max(g.headDim, absorbed ? rankK + c.branch.width : 0);
  const pinned = pinnedSlots(c.eviction, capacity);
  const floats =
    (g.adapter ? 5 : 3) * g.hidden + // residual stream, its norm, a projection's output; beside an adapter prelude output and loop state
    (heads(c) + 2 * kvHeads) * g.headDim +
    (absorbed ? c.branch.width * heads(c) : 0) + // a projection's queries, keys, values, branch queries
    querySets(c) * heads(c) * queryWidth + // queries as attention reads them
    heads(c) * (g.headDim + 2) + // attention's output, maximum and sum
    (mergesLatents(c) ? heads(c) * rankV : 0) + // merged rows before the value up-projection
    3 * mlp + // gate, up, their product
    g.vocab + // logits, gathered from all GPUs for the choice of the token
    (pinned > 0 ? 2 : 1) * heads(c) * (partialWidth(c) + 2) + // partials: one split of each segment
    (spansLoops(c) ? 0 : latentScalars(c) + branchKeyScalars(c)) + // a latent that is complete within its layer
    (c.path === 'fast' ? 2 * (spansLoops(c) ? g.loops : 1) * kvHeads * g.headDim : 0) + // rows that the last loop reconstructs
    (c.path === 'block-absorbed'
      ? heads(c) *
        (g.headDim * blockComponents(rankK) +
          blockBasisScalars(capacity - pinned, rankK, blockPlan(g.rope.theta, g.headDim)))
      : 0) + // the block vectors a_m, b_m, and the basis of every block
    (c.eviction?.policy === 'h2o' ? heads(c) * capacity : 0); // scores
  const rebuilt = c.path === 'reconstruct' && c.materialised ? 2 * capacity * kvHeads * g.headDim * 2 : 0;
  return floats * F32 + rebuilt;
}

/** Bytes that `batch` sequences need on a GPU, without the reserve. */
export const totalBytes = (m: MemoryModel, batch: number): number =>
  m.weightsBytes + m.codecBytes + m.workspaceFixedBytes + batch * bytesPerSequence(m);

/** Bytes that one more sequence needs. */
export const bytesPerSequence = (m: MemoryModel): number =>
  m.kvBytesPerSequence + m.inFlightBytesPerSequence + m.evictionBytesPerSequence + m.workspaceBytesPerSequence;

/** The largest batch that fits into `usableBytes` (what is left after reserve and utilisation); 0 when none does. */
export function maxBatch(m: MemoryModel, usableBytes: number): number {
  const free = usableBytes - m.weightsBytes - m.codecBytes - m.workspaceFixedBytes;
  return Math.max(0, Math.floor(free / bytesPerSequence(m)));
}

/** The largest of 1, 2, 3, 4, 6, 8, 12, 16, … (2^k and 3·2^(k−1)) that is at most `batch`; 0 for none. */
export function onGrid(batch: number): number {
  if (batch < 1) return 0;
  const power = 2 ** Math.floor(Math.log2(batch));
  return power * 1.5 <= batch && power >= 2 ? power * 1.5 : power;
}

/**
 * Working memory of prefilling one prompt of `context` tokens, beside weights and codec, by kind.
 *
 * Latent codecs need two passes: pass 1 captures exact K/V of every loop, the codec encodes and reconstructs, pass 2
 * runs on the reconstruction.
 * - `one-shot`: float32 captures and float32 full-width reconstructions of everything (the paper's first decoder).
 * - `by-layer`: captures in 16 bits (32 where the cache has 32), freed layer by layer as the last loop passes; loops
 * are outermost,
 *   so those of T − 1 loops are alive when the last one captures its first layer: (T − 1)·D + 1 slots.
 *   Both capture what attention reads, rotated keys in tiles, and encode chunk by chunk where attention's output was. On the absorbed
 *   path every layer's rotary keys, which loops share, stay beside in f32, as they do with accumulators.
 * - `accumulated`: encoding is linear, so f32 latent accumulators and one (layer, loop)'s K/V are enough. A latent that
 * is
 *   complete within its layer (mla-head, one loop) is accumulated for one layer at a time.
 * - `chunked`: the same for a chunk at a time; later chunks attend to latents, which is no longer the two-pass result.
 * Where rows before
 *   the chunk do not lie as its own do, attention takes several calls: the largest score and the mass of each query are carried between
 *   them, and latents of at most a chunk of earlier tokens are read back for one axis of one (layer, loop), with their branch keys.
 *
 * Codecs without latents write K and V straight to the cache: all kinds are then an ordinary prefill. Where attention
 * cannot read them there (quantised, of the last loop alone, or evicted) it needs one (layer, loop)'s K and V of the
 * whole prompt beside. Where tokens are evicted, pass 2 still attends to what storage makes of every one of them: their
 * cached rows are set aside until then. H2O chooses by masses, one a token and row that evicts on its own; those of all
 * layers where loops evict together. In chunks what it keeps of earlier tokens has rows, masses and branch keys beside
 * the chunk's.
 *
 * The buffers are those of decoder/gpu/prompt.ts.
 * @param chunkTokens prompt tokens that are worked on at once
 */
export function prefillPeaks(
  c: Configuration,
  context: number,
  chunkTokens = PREFILL_CHUNK_TOKENS,
): Record<PrefillKind, number> {
  const g = c.geometry;
  const kvHeads = headsPerGpu(g.kvHeads, c.gpus);
  const slot = 2 * kvHeads * g.headDim;
  const branchKeys = branchKeyScalars(c) * (spansLoops(c) ? g.layers : 1) * F32;
  const accumulators = latentScalars(c) * (spansLoops(c) ? g.layers : 1) * F32 + branchKeys;
  const slotsAlive = spansLoops(c) ? (g.loops - 1) * g.layers + 1 : 1;
  // Rows are kept in tiles of the cache's layout.
  const kept = (tokens: number, captures?: CapturingKind): number =>
    slot * (keptRowType(c, captures) === 'f32' ? F32 : 2) * pagedTokens(tokens, TILE_TOKENS);
  const activations = (tokens: number) =>
    (prefillStreams(g) * tokens * g.hidden +
      Math.min(tokens, chunkTokens) * (prefillRow(c) + prefillResultRow(c)) +
      Math.ceil(g.vocab / c.gpus)) *
    F32;
  const chunk = Math.min(context, chunkTokens);
  const last = context - chunk * (Math.ceil(context / chunk) - 1);
  // Rows of the last chunks, which have most before them: those that H2O keeps lie with their own.
  const rows = rowsOfRuns(c, [
    { from: context - last, tokens: last },
    ...(last < context ? [{ from: context - last - chunk, tokens: chunk }] : []),
  ]);
  const carried = chunk < context ? carriedScalars(c) * chunk * F32 : 0;
  const chosen = (tokens: number): number => choiceBytes(c, tokens, Math.min(tokens, chunk));
  if (!isLatent(c.codec)) {
    const own = (tokens: number) => (keepsRows(c) ? kept(tokens) : 0);
    const ordinary = activations(context) + own(context) + chosen(context);
    return {
      'one-shot': ordinary,
      'by-layer': ordinary,
      accumulated: ordinary,
      chunked: activations(chunk) + own(rows) + chosen(rows) + carried,
    };
  }
  const aside = (tokens: number): number =>
    setsRowsAside(c) ? Math.ceil(bytesPerToken(layoutPerGpu(c)) * pagedTokens(tokens, TILE_TOKENS)) : 0;
  return {
    'one-shot':
      2 * g.layers * g.loops * kept(context, 'one-shot') +
      branchKeys * context +
      aside(context) +
      activations(context) +
      chosen(context),
    'by-layer':
      slotsAlive * kept(context, 'by-layer') +
      branchKeys * context +
      aside(context) +
      activations(context) +
      chosen(context),
    accumulated: accumulators * context + aside(context) + kept(context) + activations(context) + chosen(context),
    chunked:
      (accumulators - branchKeys) * chunk +
      branchKeys * rows +
      aside(rows) +
      kept(rows) +
      activations(chunk) +
      chosen(rows) +
      carried,
  };
}

/**
 * What H2O chooses by while a run is taken in: statistics of a chunk's queries, masses of all tokens, and quantised
 * rows of one layer and loop, which have to be stored before they are chosen from.
 */
function choiceBytes(c: Configuration, tokens: number, chunk: number): number {
  if (c.eviction?.policy !== 'h2o') return 0;
  const stored = storesRun(c)
    ? 2 *
      headsPerGpu(c.geometry.kvHeads, c.gpus) *
      storedBytes(storageOf(c), c.geometry.headDim, c.choice.groupSize) *
      pagedTokens(tokens, TILE_TOKENS)
    : 0;
  return (2 * heads(c) * chunk + massRows(c).reduce((sum, rows) => sum + rows, 0) * tokens) * F32 + Math.ceil(stored);
}

/**
 * Floats of a prompt token that attention in several calls needs: its queries' statistics, and of earlier tokens
 * latents and branch keys.
 */
function carriedScalars(c: Configuration): number {
  if (!keepsRows(c) || c.eviction?.policy === 'h2o') return 0;
  const { kind, rankK = 0, rankV = 0 } = c.codec;
  const rebuilt =
    isLatent(c.codec) && c.path !== 'fast'
      ? Math.max(rankK, rankV) * (kind === 'lla' ? headsPerGpu(c.geometry.kvHeads, c.gpus) : 1) + branchKeyScalars(c)
      : 0;
  return 2 * heads(c) + rebuilt;
}

/**
 * Streams of hidden width that a prompt has: the residual and its norm, beside an adapter also the prelude's output.
 */
const prefillStreams = (g: Geometry): number => (g.adapter ? 3 : 2);

/**
 * Floats of a prompt token's row of projections: queries, keys and values with the rotary branch's queries, later gate
 * and up; on the fast path the rows of every loop that the last one writes.
 */
function prefillRow(c: Configuration): number {
  const { mlpHidden, headDim, loops } = c.geometry;
  const kvHeads = headsPerGpu(c.geometry.kvHeads, c.gpus);
  const packed = (heads(c) + 2 * kvHeads) * headDim + (c.path === 'absorbed' ? c.branch.width * heads(c) : 0);
  const restored = c.path === 'fast' && spansLoops(c) ? loops * kvHeads * headDim : 0;
  return Math.max(2 * Math.ceil(mlpHidden / c.gpus), packed, restored);
}

/** Floats of what is made from it: attention's output, the MLP's, before these a token's key or value latents. */
function prefillResultRow(c: Configuration): number {
  const { mlpHidden, kvHeads, headDim } = c.geometry;
  const { kind, rankK = 0, rankV = 0 } = c.codec;
  const latents = isLatent(c.codec) ? Math.max(rankK, rankV) * (kind === 'lla' ? headsPerGpu(kvHeads, c.gpus) : 1) : 0;
  return Math.max(Math.ceil(mlpHidden / c.gpus), heads(c) * headDim, latents);
}
