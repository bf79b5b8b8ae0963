/**
 * Learned latents of the paper (Eq. encode, decode and ratio), by what one of them stands for:
 *
 *   lla        a head's vectors of all loops               ρ = 2·T·d / (r_k + r_v)
 *   lla-2d     those of all loops and heads                ρ = 2·T·H_kv·d / (r_k + r_v)
 *   mla-head   those of all heads, one for every loop      ρ = 2·H_kv·d / (r_k + r_v), the head-axis baseline
 *   lla-window lla's latents of every token, and beside them the exact K and V of all loops of the last W tokens in a
 *              ring: attention of a step reads the ring for these and the latents for older ones. The cache of a token
 *              is LLA's; the ring is a number of bytes a sequence.
 *
 * Matrices of lla-2d grow with H_kv² and outweigh the model at small ratios.
 */
import type { Geometry } from '../geometry/geometry.js';
import type { CodecKind, CodecSpec } from './codec.js';
import { latentTensors, sharedByLoops, windowTensors } from './layout.js';
import { genericRatios, isHuginnStack, isOuroStack, latentScalars, ranksForRatio, refuseRanks } from './ranks.js';

/** @param loopAxis whether a latent serves all loops @param latentFor which heads it serves */
function latentCodec(
  kind: CodecKind,
  {
    loopAxis,
    latentFor,
    ...more
  }: Pick<CodecSpec, 'title' | 'paths' | 'loopAxis' | 'publishedRatios'> & {
    readonly latentFor: 'one-head' | 'all-heads';
  },
): CodecSpec {
  const oneHead = latentFor === 'one-head';
  /** Width of the vector that a latent stands for, and latents of a layer. */
  const widthOf = (g: Geometry): number => (loopAxis ? g.loops : 1) * (oneHead ? 1 : g.kvHeads) * g.headDim;
  const countOf = (g: Geometry): number => (loopAxis ? 1 : g.loops) * (oneHead ? g.kvHeads : 1);
  return {
    ...more,
    loopAxis,
    latentFor,
    settings: ['rankK', 'rankV'],
    closes: loopAxis ? 'last-loop' : 'always',
    ratio: (g, codec) => (2 * widthOf(g)) / latentScalars(codec),
    fromRatio: (g, ratio) => {
      const ranks = ranksForRatio(g, 2 * widthOf(g), ratio);
      return typeof ranks === 'string' ? ranks : { kind, ...ranks };
    },
    refuse: (g, { rankK, rankV }) =>
      refuseRanks(rankK, rankV, widthOf(g), `${loopAxis ? 'T·' : ''}${oneHead ? '' : 'H·'}d`),
    core: (g, core, { rankK = 0, rankV = 0 }, choice) =>
      latentTensors(loopAxis ? sharedByLoops(core) : core, oneHead ? g.kvHeads : 1, rankK, rankV, choice),
    // Of each latent and axis W_down (width × r), W_up (the same), mu (width).
    parameters: (g, codec) => g.layers * countOf(g) * 2 * widthOf(g) * (latentScalars(codec) + 1),
  };
}

export const lla = latentCodec('lla', {
  title: 'LLA, one latent per head across loops',
  paths: ['reconstruct', 'block-absorbed', 'absorbed', 'fast'],
  latentFor: 'one-head',
  loopAxis: true,
  publishedRatios: (g) =>
    isOuroStack(g)
      ? [4 / 3, 1.6, 2, 8 / 3, 3.2, 4, 16 / 3, 32 / 3, 128 / 9, 64 / 3]
      : isHuginnStack(g)
        ? [16, 32, 64, 128]
        : genericRatios(g),
});

const ALL_HEADS = {
  paths: ['absorbed', 'reconstruct', 'block-absorbed', 'fast'],
  latentFor: 'all-heads',
  publishedRatios: (g: Geometry) =>
    isOuroStack(g) ? [4, 16 / 3, 32 / 3, 64 / 3] : genericRatios(g).filter((r) => r >= g.loops),
} as const;

export const lla2d = latentCodec('lla-2d', {
  ...ALL_HEADS,
  title: 'LLA-2D, one latent across loops and heads',
  loopAxis: true,
});

export const mlaHead = latentCodec('mla-head', {
  ...ALL_HEADS,
  title: 'MLA across heads, one latent per loop',
  loopAxis: false,
});

/** Exact tokens unless --window says otherwise. */
export const DEFAULT_WINDOW_TOKENS = 128;

export const llaWindow: CodecSpec = {
  ...lla,
  title: 'LLA with exact K and V of the last tokens',
  paths: ['reconstruct', 'block-absorbed'],
  settings: [...lla.settings, 'windowTokens'],
  onlyAsked: true,
  weightsOf: 'lla',
  fusedOnly: true,
  refusesEviction: 'its latents are those of all tokens',
  fromRatio: (g, ratio) => {
    const codec = lla.fromRatio(g, ratio);
    return typeof codec === 'string' ? codec : { ...codec, kind: 'lla-window', windowTokens: DEFAULT_WINDOW_TOKENS };
  },
  refuse: (g, codec) =>
    codec.windowTokens === undefined || !Number.isInteger(codec.windowTokens) || codec.windowTokens < 1
      ? `lla-window keeps a whole number of exact tokens of at least 1, not ${codec.windowTokens}`
      : lla.refuse(g, codec),
  core: (g, core, codec, choice) => [
    ...lla.core(g, core, codec, choice),
    ...windowTensors(core, g, choice, codec.windowTokens),
  ],
};
