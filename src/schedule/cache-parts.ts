/**
 * How the caches of a batch are divided where one call cannot bind them, or where they have too many rows for its
 * workgroups: by groups of sequences, the same for all rows of a block. Buffers that grow with the cache are divided
 * with them: rebuilt rows, block vectors and basis, scores, mass and positions.
 */
import { pathSpec } from '../codecs/paths.js';
import { isPacked, layoutOf } from '../codecs/registry.js';
import { rowBytes, rowSlots } from '../codecs/layout.js';
import { pinnedSlots, pinsSinks, weighsTokens } from '../eviction/policy.js';
import type { LayerBlock } from '../geometry/geometry.js';
import { headsOf, headsPerGpu, kvHeadsOf, partsOf, type Configuration, type Part } from './configuration.js';
import { blockPlan } from '../../kernels/shared/block/block-absorbed.js';
import { branchWidth, evictingRows, latentsByLoop, readsLatents } from './facts.js';
import { blockBasisScalars } from '../../kernels/block_basis/terms.js';
import { blockComponents } from '../../kernels/block_vectors/terms.js';

/** Where a part of a buffer may begin, in bytes: WebGPU's default of minStorageBufferOffsetAlignment. */
export const ALIGNMENT = 256;
/** WebGPU's default of maxComputeWorkgroupsPerDimension. */
const MOST_WORKGROUPS = 65_535;
/** Of activations, scores, mass and positions. */
const WORD_BYTES = 4;

const gcd = (a: number, b: number): number => (b === 0 ? a : gcd(b, a % b));
/** Attention writes the scores of all tokens: for H2O, or to choose keys. */
const writesScores = (c: Configuration): boolean => weighsTokens(c.eviction) || isPacked(c.codec);
const absorbsBlocks = (c: Configuration, block: LayerBlock): boolean =>
  readsLatents(c, block) && pathSpec(c.path).blocks === true;

/** The largest binding of a part, for each of its sequences, in bytes. @param slots tokens of a row */
export function sequenceBytes(c: Configuration, block: LayerBlock, slots: number): number {
  const { headDim, rope } = c.geometry;
  const cached = layoutOf(c.geometry, c.codec, c.path, c.choice, c.branch)
    .filter((t) => t.block === block.name)
    .map((t) => rowSlots(t, slots) * headsPerGpu(t.heads, c.gpus) * rowBytes(t));
  const rebuilt = readsLatents(c, block) && c.materialised ? kvHeadsOf(c) * headDim * 2 : 0;
  // There are no more rows with a mass and positions of their own than heads with scores.
  const scores = writesScores(c) ? WORD_BYTES * headsOf(c) : 0;
  const { rankK = 0 } = c.codec;
  const basis = absorbsBlocks(c, block)
    ? Math.max(
        blockBasisScalars(slots - pinnedSlots(c.eviction, slots), rankK, blockPlan(rope.theta, headDim)),
        headDim * blockComponents(rankK),
      )
    : 0;
  return Math.max(slots * Math.max(rebuilt, scores), ...cached, WORD_BYTES * headsOf(c) * basis);
}

/** Sequences after which a part may begin: that offset must be one at which a binding may begin, in every buffer. */
export function sequencesApart(c: Configuration, block: LayerBlock, slots: number): number {
  const absorbed = readsLatents(c, block) && pathSpec(c.path).branch;
  const rotated = readsLatents(c, block) && pathSpec(c.path).rotated;
  const queries = headsOf(c) * (absorbed ? (c.codec.rankK as number) + branchWidth(c, block) : c.geometry.headDim);
  // Under H2O also maximum and sum of each head, and its scores; StreamingLLM's positions of pinned tokens where keys
  // are rotated as they are read.
  const strides = [
    queries,
    ...(rotated ? latentsByLoop(c).map(({ rankK }) => headsOf(c) * rankK) : []),
    ...(writesScores(c) ? [2 * headsOf(c), headsOf(c) * slots] : []),
    ...(pinsSinks(c.eviction) && readsLatents(c, block) ? [slots] : []),
  ];
  // Powers of two: the largest is a multiple of all.
  return Math.max(...strides.map((words) => ALIGNMENT / gcd(ALIGNMENT, WORD_BYTES * words)));
}

/** Rows of a sequence that a kernel has a workgroup for, along one dimension. */
function workgroupRows(c: Configuration, block: LayerBlock): number {
  return Math.max(1, weighsTokens(c.eviction) ? evictingRows(c, block) : 0, absorbsBlocks(c, block) ? headsOf(c) : 0);
}

/** Equal parts of `batch` sequences, the rest in one more. @param slots tokens that each row has room for */
export function cacheParts(c: Configuration, block: LayerBlock, batch: number, slots: number): Part[] {
  const bound = c.bindingBytes === Infinity ? Infinity : c.bindingBytes / sequenceBytes(c, block, slots);
  const most = Math.max(1, Math.floor(Math.min(bound, MOST_WORKGROUPS / workgroupRows(c, block))));
  if (batch <= most) return [{ size: batch, repeat: 1 }];
  const apart = sequencesApart(c, block, slots);
  const aligned = Math.max(1, Math.floor(most / apart)) * apart;
  const size = Math.min(aligned, Math.ceil(Math.ceil(batch / Math.ceil(batch / aligned)) / apart) * apart);
  return partsOf(batch, size);
}
