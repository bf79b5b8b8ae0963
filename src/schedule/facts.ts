/** What a configuration makes of a block's cache: what listings, buffers and frames all ask. */
import type { Streams } from '../codecs/codec.js';
import { ranksOfLoops, type LoopRanks } from '../codecs/hla.js';
import { pathSpec } from '../codecs/paths.js';
import { codecSpec, isHybrid, isLatent, layoutOf, streamsOf } from '../codecs/registry.js';
import type { LayerBlock } from '../geometry/geometry.js';
import type { ResidualRow } from '../../kernels/shared/cache/residual.layout.js';
import { branchHeadsOf, kvHeadsOf, latentsOf, type Configuration, type When } from './configuration.js';

/** True where attention of a block reads latents, or K and V rebuilt from them: every latent path but `fast`. */
export const readsLatents = (c: Configuration, block: LayerBlock): boolean =>
  block.name === 'core' && isLatent(c.codec) && pathSpec(c.path).latents === true;

/** Last tokens of which attention of a block reads exact rows beside its latents; 0 without such a window. */
export const windowOf = (c: Configuration, block: LayerBlock): number =>
  readsLatents(c, block) ? (c.codec.windowTokens ?? 0) : 0;

/** Width of the rotary branch that the block caches, 0 without. */
export const branchWidth = (c: Configuration, block: LayerBlock): number =>
  block.name === 'core' && pathSpec(c.path).branch ? c.branch.width : 0;

/** Rows of a layer, loop and sequence (one GPU) that evict alone: one a KV head, or 1 where all share a row. */
export function evictingRows(c: Configuration, block: LayerBlock): number {
  if (!readsLatents(c, block)) return kvHeadsOf(c);
  return branchWidth(c, block) > 0 && !c.branch.perHead ? 1 : latentsOf(c);
}

/** Scalars of a token in all rows of a layer and loop that evict in a step. */
export function evictedScalars(c: Configuration, block: LayerBlock): number {
  const { rankK = 0, rankV = 0 } = c.codec;
  return readsLatents(c, block)
    ? (rankK + rankV) * latentsOf(c) + branchWidth(c, block) * branchHeadsOf(c)
    : 2 * kvHeadsOf(c) * c.geometry.headDim;
}

/** When a layer's cache of the step is complete and read for the last time: then it is appended to and evicted from. */
export const closingTime = (c: Configuration, block: LayerBlock): When =>
  block.name === 'core' ? codecSpec(c.codec).closes : 'always';

export const sharesLayers = (c: Configuration, block: LayerBlock): boolean => closingTime(c, block) === 'closing-layer';

/** When keys and values are projected: in the layer that owns them, where layers share a cache. */
export const owningTime = (c: Configuration, block: LayerBlock): When =>
  sharesLayers(c, block) ? 'owning-layer' : 'always';

/** When the rotary branch's key of a token is made: once for the loops that share its latent, in the first. */
export const branchKeyTime = (c: Configuration): When => (codecSpec(c.codec).loopAxis ? 'first-loop' : 'always');

/** Scalars of a token's rows of one loop in a layer: its keys, then its values. */
export const meanRow = (c: Configuration): number => 2 * kvHeadsOf(c) * c.geometry.headDim;

/** The row of a layer whose loops are stored together. @throws Error for a codec without */
export function anchoredRow(c: Configuration): ResidualRow {
  const found = layoutOf(c.geometry, c.codec, c.path, c.choice, c.branch).find(({ residual }) => residual);
  if (!found?.residual) throw new Error(`${c.codec.kind} stores each loop as it comes`);
  return found.residual;
}

/** Streams of the codec in a block; undefined where its loops do not differ. */
export const streamsIn = (c: Configuration, block: LayerBlock): Streams | undefined =>
  block.name === 'core' ? streamsOf(c.geometry, c.codec) : undefined;

/** Latents of some loops that carry their rotation: when they are encoded and read, and when they are complete. */
export interface LoopLatents extends LoopRanks {
  readonly read: When;
  readonly complete: When;
}

/** The first loop's latents, then those of the others. */
export function latentsByLoop({ codec }: Pick<Configuration, 'codec'>): LoopLatents[] {
  const { first, shared } = ranksOfLoops(codec);
  return [
    { ...first, read: 'first-loop', complete: 'first-loop' },
    { ...shared, read: 'later-loops', complete: 'last-loop' },
  ];
}

/** The widest of both: buffers that the loops use in turn. */
export const widestRanks = (c: Pick<Configuration, 'codec'>): LoopRanks => {
  const [first, shared] = latentsByLoop(c) as [LoopLatents, LoopLatents];
  return { rankK: Math.max(first.rankK, shared.rankK), rankV: Math.max(first.rankV, shared.rankV) };
};

/** True where a block caches such latents. */
export const hasHybridLatents = (c: Pick<Configuration, 'codec'>, block: LayerBlock): boolean =>
  block.name === 'core' && isHybrid(c.codec);
