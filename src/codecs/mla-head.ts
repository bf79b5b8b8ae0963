/**
 * mla-head: an MLA latent across heads, one for every loop (the paper's head-axis baseline).
 * ρ = 2·H_kv·d / (r_k + r_v).
 */
import type { CodecSpec } from './codec.js';
import { latentTensors } from './layout.js';
import { genericRatios, isOuroStack, latentScalars, ranksForRatio, refuseRanks } from './ranks.js';

export const mlaHead: CodecSpec = {
  title: 'MLA across heads, one latent per loop',
  paths: ['absorbed', 'reconstruct', 'block-absorbed', 'fast'],
  settings: ['rankK', 'rankV'],
  latentFor: 'all-heads',
  loopAxis: false,
  closes: 'always',
  ratio: (g, codec) => (2 * g.kvHeads * g.headDim) / latentScalars(codec),
  publishedRatios: (g) => (isOuroStack(g) ? [4, 16 / 3, 32 / 3, 64 / 3] : genericRatios(g).filter((r) => r >= g.loops)),
  fromRatio: (g, ratio) => {
    const ranks = ranksForRatio(g, 2 * g.kvHeads * g.headDim, ratio);
    return typeof ranks === 'string' ? ranks : { kind: 'mla-head', ...ranks };
  },
  refuse: (g, { rankK, rankV }) => refuseRanks(rankK, rankV, g.kvHeads * g.headDim, 'H·d'),
  core: (_g, core, { rankK = 0, rankV = 0 }, choice) => latentTensors(core, 1, rankK, rankV, choice),
  parameters: (g, { rankK = 0, rankV = 0 }) =>
    g.layers * g.loops * (2 * g.kvHeads * g.headDim * (rankK + rankV) + 2 * g.kvHeads * g.headDim),
};
