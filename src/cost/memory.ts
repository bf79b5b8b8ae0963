/**
 * Memory of a serving process, exactly: what the decoder allocates is what is counted here. All sizes in bytes, of one
 * GPU; under tensor parallelism each GPU holds its share of what divides and a copy of what does not.
 */
import { pathSpec } from '../codecs/paths.js';
import {
  codecMeans,
  codecSpec,
  isHybrid,
  isLatent,
  latentHeads,
  paddedCodecParameters,
  takesPositions,
} from '../codecs/registry.js';
import { bytesPerToken, pagedTokens, windowBytes } from '../codecs/layout.js';
import { allocatedTokens, keptTokens } from '../eviction/policy.js';
import {
  layerParameters,
  layerProjections,
  parameterCount,
  projectsValues,
  storedLayers,
  tableParameters,
  WEIGHT_BYTES,
  type Geometry,
} from '../geometry/geometry.js';
import { bytesOf, layoutPerGpu, stepBuffers } from '../schedule/buffers.js';
import { prefillBuffers } from '../schedule/prefill/buffers.js';
import type { PromptExtent } from '../schedule/prefill/pass.js';
import {
  capturesOf,
  PREFILL_CHUNK_TOKENS,
  rowsOfRuns,
  takenAs,
  type WholePrompt,
} from '../schedule/prefill/prefill.js';
import { headsPerGpu, type Configuration } from '../schedule/schedule.js';
import { evenRow } from '../../kernels/spec.js';

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

/** Bytes of a scalar of projections in layers, of tables, and of everything else. */
function scalarBytes(g: Geometry): { readonly projection: number; readonly table: number; readonly other: number } {
  const other = WEIGHT_BYTES[g.weightType];
  const { quantised: q } = g;
  return q
    ? { projection: q.layerBits / 8, table: q.tableBits / 8, other }
    : { projection: other, table: other, other };
}

/** Scalars of a layer's norms. */
const normScalars = (g: Geometry): number => (g.plainNorms ? 0 : g.normsPerLayer * g.hidden);

/**
 * Weights of one GPU: projections and embeddings divide, norms and the adapter's bias-free rows are small and whole.
 */
export function weightBytes(g: Geometry, gpus: number): number {
  const { projection, table, other } = scalarBytes(g);
  const layers = storedLayers(g);
  const kvWhole = g.hidden * g.headDim * (projectsValues(g) ? 2 : 1) * g.kvHeads;
  const kvShare = gpus === 1 ? kvWhole : (kvWhole / g.kvHeads) * headsPerGpu(g.kvHeads, gpus);
  const whole = normScalars(g) + g.extraParametersPerLayer;
  const layer = ((layerProjections(g) - kvWhole) / gpus + kvShare) * projection + whole * other;
  const tables = tableParameters(g);
  const outside = parameterCount(g) - layers * layerParameters(g) - tables;
  const last = gpus === 1 ? 0 : g.hidden;
  return Math.ceil(layers * layer + (tables / gpus) * table + (outside / gpus + last) * other);
}

/**
 * Weights that a GPU holds beyond those of the checkpoint. Norms, biases and a stack's first state are kept in f32. A
 * final norm that also runs after the core is held twice. The exit gate's single column is padded to a pair and has no
 * bias (it never fires). Layers that read another layer's cache (cla) need no K and V projections. Gates of loops are
 * matrices, of rows padded to pairs; what tells LoopUS when to stop is not held.
 */
function heldBeyondCheckpoint(c: Configuration): number {
  const g = c.geometry;
  const { projection, other: bytes } = scalarBytes(g);
  const kept = (normScalars(g) + g.extraParametersPerLayer) * storedLayers(g) + (g.plainNorms ? 0 : g.hidden);
  const state = g.stacks ? (g.extraParameters ?? 0) : 0;
  const unread =
    2 * headsPerGpu(g.kvHeads, c.gpus) * g.headDim * g.hidden * (g.layers - g.layers / (c.codec.shareLayers ?? 1));
  const padded = (rows: number, columns: number): number => rows * evenRow(columns) * bytes;
  // The decoder projects the keys twice, once for each row.
  const copies = g.copiesKeys ? storedLayers(g) * g.hidden * g.headDim * g.kvHeads * projection : 0;
  const gates = g.loopGateOfInput ? storedLayers(g) * (padded(g.hidden, g.heads) - g.heads * g.hidden * F32) : 0;
  const change =
    g.changeRank === undefined
      ? 0
      : padded(g.hidden, g.changeRank) +
        padded(g.changeRank, g.hidden) +
        2 * g.hidden * F32 -
        (g.extraParameters ?? 0) * bytes;
  const twice = g.normAfterCore ? g.hidden * F32 : 0;
  return (
    (kept + state) * (F32 - bytes) +
    twice +
    copies +
    gates +
    change +
    (g.exitGate ? (g.hidden - 1) * bytes : 0) -
    unread * projection
  );
}

/**
 * Codec parameters of one GPU. Per-head matrices divide with the KV heads; matrices of a shared latent are replicated
 * on the latent side and divided on the head side; of a rotary branch that all heads share every GPU has the keys'
 * projection. Rows of an odd rank are padded by one; a constant a latent centres what is encoded.
 */
function codecBytesPerGpu(c: Configuration): number {
  const total =
    paddedCodecParameters(c.geometry, c.codec, c.path, c.branch, c.materialised) * CODEC_BYTES +
    (codecMeans(c.geometry, c.codec) + centreScalars(c)) * F32;
  const { geometry: g, branch } = c;
  const sharedKeys = pathSpec(c.path).branch && !branch.perHead ? g.layers * g.hidden * branch.width : 0;
  const whole = ((codecSpec(c.codec).wholeParameters?.(g, c.codec) ?? 0) + sharedKeys) * CODEC_BYTES;
  return Math.ceil(whole + ((total - whole) * headsPerGpu(c.geometry.kvHeads, c.gpus)) / c.geometry.kvHeads);
}

/** −μ·W_down of every latent, added as it is appended; `fast` decodes instead. */
function centreScalars(c: Configuration): number {
  if (!isLatent(c.codec) || isHybrid(c.codec) || pathSpec(c.path).restores) return 0;
  const { rankK = 0, rankV = 0 } = c.codec;
  const latents = latentHeads(c.codec, c.geometry.kvHeads) * (codecSpec(c.codec).loopAxis ? 1 : c.geometry.loops);
  return (rankK + rankV) * latents * c.geometry.layers;
}

/** Builds the memory model of a configuration at a context length (tokens). */
export function memoryModel(c: Configuration, context: number, pageTokens: number): MemoryModel {
  const g = c.geometry;
  const layout = layoutPerGpu(c);
  const perToken = bytesPerToken(layout);
  const allocated = pagedTokens(allocatedTokens(c.eviction, context), pageTokens);
  const buffers = stepBuffers(c, allocated);
  const workspace = bytesOf(buffers, 'workspace');
  return {
    weightsBytes: weightBytes(g, c.gpus) + heldBeyondCheckpoint(c),
    codecBytes: codecBytesPerGpu(c),
    kvBytesPerToken: perToken,
    kvBytesPerSequence: Math.ceil(perToken * allocated + windowBytes(layout, allocated)),
    inFlightBytesPerSequence: bytesOf(buffers, 'in-flight').sequence,
    evictionBytesPerSequence: bytesOf(buffers, 'eviction').sequence,
    kvBytesAt1M: Math.ceil(perToken * keptTokens(c.eviction, 2 ** 20) + windowBytes(layout, 2 ** 20)),
    workspaceFixedBytes: workspace.fixed,
    workspaceBytesPerSequence: workspace.sequence,
  };
}

/** The same on a server that keeps working memory in its reserve. */
export const withoutWorkspace = (m: MemoryModel): MemoryModel => ({
  ...m,
  workspaceFixedBytes: 0,
  workspaceBytesPerSequence: 0,
});

/** Bytes that `batch` sequences need on a GPU, without the reserve. */
export const totalBytes = (m: MemoryModel, batch: number): number =>
  m.weightsBytes + m.codecBytes + m.workspaceFixedBytes + batch * bytesPerSequence(m);

/** Bytes that one more sequence needs. */
export const bytesPerSequence = (m: MemoryModel): number =>
  m.kvBytesPerSequence + m.inFlightBytesPerSequence + m.evictionBytesPerSequence + m.workspaceBytesPerSequence;

/**
 * The largest batch that fits into `usableBytes` (what is left after reserve and utilisation); 0 when none does.
 * @param more what each sequence beyond so many takes of the reserve
 */
export function maxBatch(
  m: MemoryModel,
  usableBytes: number,
  more?: { readonly beyond: number; readonly bytesEach: number } | null,
): number {
  const free = usableBytes - m.weightsBytes - m.codecBytes - m.workspaceFixedBytes;
  const each = bytesPerSequence(m);
  const most = Math.max(0, Math.floor(free / each));
  if (!more || most <= more.beyond) return most;
  return Math.max(more.beyond, Math.floor((free + more.bytesEach * more.beyond) / (each + more.bytesEach)));
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
 *   Both capture what attention reads, rotated keys in tiles, and encode chunk by chunk where attention's output was.
 * On the absorbed
 *   path every layer's rotary keys, which loops share, stay beside in f32, as they do with accumulators.
 * - `accumulated`: encoding is linear, so f32 latent accumulators and one (layer, loop)'s K/V are enough. A latent that
 * is
 *   complete within its layer (mla-head, one loop) is accumulated for one layer at a time.
 * - `chunked`: the same for a chunk at a time; later chunks attend to latents, which is no longer the two-pass result.
 * Where rows before
 *   the chunk do not lie as its own do, attention takes several calls: the largest score and the mass of each query are
 * carried between
 *   them, and latents of at most a chunk of earlier tokens are read back for one axis of one (layer, loop), with their
 * branch keys.
 *
 * Where a prompt is taken position by position, all kinds are chunks of one token. Where it is one exact pass over rows
 * that no cache keeps, all are `accumulated`.
 *
 * Codecs without latents write K and V straight to the cache: all kinds are then an ordinary prefill. Where attention
 * cannot read them there (quantised, of the last loop alone, or evicted) it needs one (layer, loop)'s K and V of the
 * whole prompt beside. Where tokens are evicted, pass 2 still attends to what storage makes of every one of them: their
 * cached rows are set aside until then. H2O needs one score per token and per row that evicts independently; of all
 * layers where loops evict together. In chunks, kept tokens of earlier chunks have rows, scores and branch keys beside
 * those of the chunk.
 *
 * @param chunkTokens prompt tokens that are worked on at once
 */
export function prefillPeaks(
  c: Configuration,
  context: number,
  chunkTokens = PREFILL_CHUNK_TOKENS,
): Record<PrefillKind, number> {
  const taken = takenAs(c, 'chunked', chunkTokens);
  const [chunk, run] = [Math.min(context, taken.chunkTokens), Math.min(context, taken.runTokens)];
  const last = context - run * (Math.ceil(context / run) - 1);
  // Rows of the last runs, which have most before them: those that H2O keeps lie with their own.
  const most = rowsOfRuns(c, [
    { from: context - last, tokens: last },
    ...(last < context ? [{ from: context - last - run, tokens: run }] : []),
  ]);
  const peak = (extent: PromptExtent): number => bytesOf(prefillBuffers(c, extent), 'prefill').fixed;
  const rows = Math.max(chunk, most);
  const inChunks = peak({ room: chunk, rows, chunk, captures: undefined, carries: run < context });
  const whole = (method: WholePrompt): number =>
    takesPositions(c.codec)
      ? inChunks
      : peak({ room: context, rows: context, chunk, captures: capturesOf(c, method), carries: false });
  const accumulated = whole('accumulated');
  return {
    'one-shot': capturesOf(c, 'one-shot') ? whole('one-shot') : accumulated,
    'by-layer': capturesOf(c, 'by-layer') ? whole('by-layer') : accumulated,
    accumulated,
    chunked: taken.method === 'chunked' ? inChunks : accumulated,
  };
}
