/**
 * The operations of latents that carry their rotation (codecs/hla.ts), in steps and prompts. Loops have the widths of
 * the latents that it reads, its own in the first loop, those of all others after it.
 */
import { isHybrid } from '../codecs/registry.js';
import { ranksOfLoops, type LoopRanks } from '../codecs/hla.js';
import type { LayerBlock } from '../geometry/geometry.js';
import { op, perHead, type Configuration, type Op, type Part, type When } from './configuration.js';
import { appendOp, ropeOp } from './rows.js';

/** Latents of some loops: when they are encoded and read, and when they are complete. */
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

/** Encoding of attention's input, K and V side by side; the loops after the first accumulate. */
export const hybridEncodeOps = (c: Configuration, rows: number): Op[] =>
  latentsByLoop(c).map(({ rankK, rankV, read }) => perHead('encode', 1, rows, c.geometry.hidden, rankK + rankV, read));

/** Rotation of key latents that are complete, heads of ordinary width side by side, and their writing to the cache. */
export const hybridAppendOps = (
  c: Configuration,
  rows: number,
  parts: readonly Part[] = [{ size: rows, repeat: 1 }],
): Op[] =>
  latentsByLoop(c).flatMap(({ rankK, rankV, complete }) => [
    ropeOp(c, 'rope-latent', rows, rankK / c.geometry.headDim, complete),
    ...parts.map(({ size, repeat }) => appendOp(c, 'append-k', size, 1, rankK, complete, repeat)),
    ...parts.map(({ size, repeat }) => appendOp(c, 'append-v', size, 1, rankV, complete, repeat)),
  ]);

/** Rotation of queries that were brought to a latent's keys. */
export const latentQueryRope = (c: Configuration, rows: number, heads: number, rankK: number): Op =>
  op('rope-latent-query', 'rope', c.geometry.rope.pairing, {
    rows,
    heads: heads * (rankK / c.geometry.headDim),
    headDim: c.geometry.headDim,
  });
