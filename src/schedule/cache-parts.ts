/** How the caches of a batch are divided where one call cannot bind all of it: by groups of sequences, all rows of a block alike. */
import { layoutOf } from '../codecs/registry.js';
import { rowBytes } from '../codecs/layout.js';
import type { LayerBlock } from '../geometry/geometry.js';
import { headsPerGpu, type Configuration } from './configuration.js';
import { blockPlan } from './block-absorbed.js';
import { branchWidth, readsLatents } from './eviction-ops.js';
import { blockBasisScalars } from './kernels.js';

/** Where a part of a buffer may begin, in bytes: WebGPU's default of minStorageBufferOffsetAlignment. */
const ALIGNMENT = 256;

const gcd = (a: number, b: number): number => (b === 0 ? a : gcd(b, a % b));

/** The most that a part binds for each of its sequences: rows of one layer and loop, cached or rebuilt, or a block basis. @param slots tokens of a row */
export function sequenceBytes(c: Configuration, block: LayerBlock, slots: number): number {
  const { headDim, kvHeads } = c.geometry;
  const cached = layoutOf(c.geometry, c.codec, c.path, c.choice, c.branch)
    .filter((t) => t.block === block.name)
    .map((t) => headsPerGpu(t.heads, c.gpus) * rowBytes(t));
  const rebuilt = readsLatents(c, block) && c.path === 'reconstruct' && c.materialised ? headsPerGpu(kvHeads, c.gpus) * headDim * 2 : 0;
  const { theta } = c.geometry.rope;
  const basis = readsLatents(c, block) && c.path === 'block-absorbed' ? 4 * headsPerGpu(c.geometry.heads, c.gpus) * blockBasisScalars(slots, c.codec.rankK ?? 0, blockPlan(theta, headDim)) : 0;
  return Math.max(slots * Math.max(rebuilt, ...cached), basis);
}

/** Sequences after which the queries of the next lie where a binding may begin. */
function sequencesApart(c: Configuration, block: LayerBlock): number {
  const branch = branchWidth(c, block);
  const width = branch > 0 ? (c.codec.rankK as number) + branch : c.geometry.headDim;
  return ALIGNMENT / gcd(ALIGNMENT, headsPerGpu(c.geometry.heads, c.gpus) * width * 4);
}

/**
 * Equal parts of `batch` sequences, the rest in one more.
 * @param slots tokens that each row has room for
 */
export function cacheParts(c: Configuration, block: LayerBlock, batch: number, slots: number): { size: number; repeat: number }[] {
  const most = Math.max(1, Math.floor(c.bindingBytes / sequenceBytes(c, block, slots)));
  if (batch <= most) return [{ size: batch, repeat: 1 }];
  const apart = sequencesApart(c, block);
  const aligned = Math.max(1, Math.floor(most / apart)) * apart;
  const size = Math.min(aligned, Math.ceil(Math.ceil(batch / Math.ceil(batch / aligned)) / apart) * apart);
  const whole = Math.floor(batch / size);
  const rest = batch - whole * size;
  return [{ size, repeat: whole }, ...(rest > 0 ? [{ size: rest, repeat: 1 }] : [])];
}
