/**
 * LLA-2D: one K and one V latent per token and layer for all loops and heads (paper, Sec. method).
 * ρ = 2·T·H_kv·d / (r_k + r_v); its matrices grow with H_kv² and outweigh the model at small ratios.
 */
import type { CodecSpec } from './codec.js';
import { latentTensors, sharedByLoops } from './layout.js';
import { genericRatios, isOuroStack, latentScalars, ranksForRatio, refuseRanks } from './ranks.js';

export const lla2d: CodecSpec = {
  title: 'LLA-2D, one latent across loops and heads',
  paths: ['absorbed', 'reconstruct', 'block-absorbed', 'fast'],
  settings: ['rankK', 'rankV'],
  latentFor: 'all-heads',
  loopAxis: true,
  closes: 'last-loop',
  ratio: (g, codec) => (2 * g.loops * g.kvHeads * g.headDim) / latentScalars(codec),
  publishedRatios: (g) => (isOuroStack(g) ? [4, 16 / 3, 32 / 3, 64 / 3] : genericRatios(g).filter((r) => r >= g.loops)),
  fromRatio: (g, ratio) => {
    const ranks = ranksForRatio(g, 2 * g.loops * g.kvHeads * g.headDim, ratio);
    return typeof ranks === 'string' ? ranks : { kind: 'lla-2d', ...ranks };
  },
  refuse: (g, { rankK, rankV }) => refuseRanks(rankK, rankV, g.loops * g.kvHeads * g.headDim, 'T·H·d'),
  core: (_g, core, { rankK = 0, rankV = 0 }, choice) => latentTensors(sharedByLoops(core), 1, rankK, rankV, choice),
  parameters: (g, { rankK = 0, rankV = 0 }) => {
    const width = g.loops * g.kvHeads * g.headDim;
    return g.layers * (2 * width * (rankK + rankV) + 2 * width);
  },
};
