/**
 * LLA: one K and one V latent per head for all loops (paper, Eq. encode, decode and ratio).
 * ρ = 2·T·d / (r_k + r_v).
 */
import type { CodecSpec } from './codec.js';
import { latentTensors, sharedByLoops } from './layout.js';
import { genericRatios, isHuginnStack, isOuroStack, latentScalars, ranksForRatio, refuseRanks } from './ranks.js';

export const lla: CodecSpec = {
  title: 'LLA, one latent per head across loops',
  paths: ['reconstruct', 'block-absorbed', 'absorbed', 'fast'],
  settings: ['rankK', 'rankV'],
  latentFor: 'one-head',
  loopAxis: true,
  closes: 'last-loop',
  ratio: (g, codec) => (2 * g.loops * g.headDim) / latentScalars(codec),
  publishedRatios: (g) =>
    isOuroStack(g)
      ? [4 / 3, 1.6, 2, 8 / 3, 3.2, 4, 16 / 3, 32 / 3, 128 / 9, 64 / 3]
      : isHuginnStack(g)
        ? [16, 32, 64, 128]
        : genericRatios(g),
  fromRatio: (g, ratio) => {
    const ranks = ranksForRatio(g, 2 * g.loops * g.headDim, ratio);
    return typeof ranks === 'string' ? ranks : { kind: 'lla', ...ranks };
  },
  refuse: (g, { rankK, rankV }) => refuseRanks(rankK, rankV, g.loops * g.headDim, 'T·d'),
  core: (g, core, { rankK = 0, rankV = 0 }, choice) =>
    latentTensors(sharedByLoops(core), g.kvHeads, rankK, rankV, choice),
  // Per layer, KV head and axis: W_down (T·d × r), W_up (T × d × r), mu (T·d).
  parameters: (g, { rankK = 0, rankV = 0 }) =>
    g.layers * g.kvHeads * (2 * g.loops * g.headDim * (rankK + rankV) + 2 * g.loops * g.headDim),
};
