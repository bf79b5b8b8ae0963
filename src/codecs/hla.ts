/**
 * HLA, Hybrid Latent Attention (arXiv 2610.07940): one latent of K and V for all heads and all loops after the first,
 * one of the first loop's own, and beside them the exact K and V of all loops of the last W tokens in a ring.
 * Latents are encoded from attention's input. Their keys carry their rotation: pair p turns at the frequency of pair
 * p mod d/2 of a head, so a key latent rotates as r_k/d heads of width d.
 *
 *   ρ = 2·T·H_kv·d / (r_k + r_v + 2·r_1), without the ring, which is a number of bytes a sequence.
 */
import type { Geometry } from '../geometry/geometry.js';
import type { Codec, CodecSpec } from './codec.js';
import { cacheTensor, latentTensors, sharedByLoops, windowTensors } from './layout.js';
import { exactRatio, isOuroStack, ratioLabel } from './ranks.js';

/** The paper's setting for both sizes of Ouro: r_k = r_v = 512, r_1 = 256, W = 128. */
const PUBLISHED_RANK_FIRST = 256;
const PUBLISHED_RATIO = 32 / 3;
const PUBLISHED_WINDOW_TOKENS = 128;

const ONE_LOOP = 'hla needs a model with at least two loops';

/** Widths of the latents that one loop reads. */
export interface LoopRanks {
  readonly rankK: number;
  readonly rankV: number;
}

/** Of the first loop (r_1 for K and for V), and of the others. */
export const ranksOfLoops = ({
  rankK = 0,
  rankV = 0,
  rankFirst = 0,
}: Codec): Record<'first' | 'shared', LoopRanks> => ({
  first: { rankK: rankFirst, rankV: rankFirst },
  shared: { rankK, rankV },
});

/** Which latents a loop reads. */
export const latentOfLoop = (loop: number): 'first' | 'shared' => (loop === 0 ? 'first' : 'shared');

/** Latent scalars of a token and layer. */
const scalars = ({ rankK = 0, rankV = 0, rankFirst = 0 }: Codec): number => rankK + rankV + 2 * rankFirst;

/** r_1 where K and V ranks alone are given: the paper's 256, of a smaller model what its first loop has. */
export const rankFirstOf = (g: Geometry): number =>
  g.headDim * Math.max(1, Math.min(g.kvHeads, Math.floor(PUBLISHED_RANK_FIRST / g.headDim)));

/** A setting of a ratio, split as the paper does: r_1 a sixth of the scalars, r_k a third, r_v the rest. */
function ofRatio(g: Geometry, ratio: number): Codec | string {
  if (g.loops < 2) return ONE_LOOP;
  const d = g.headDim;
  const sum = Math.round((2 * g.loops * g.kvHeads * d) / exactRatio(ratio));
  const heads = (share: number, most: number): number => Math.min(most, Math.max(1, Math.round((share * sum) / d)));
  const rankFirst = d * heads(1 / 6, g.kvHeads);
  const rankK = d * heads(1 / 3, (g.loops - 1) * g.kvHeads);
  const rankV = sum - rankK - 2 * rankFirst;
  return rankV < 1
    ? `a ratio of ${ratioLabel(ratio)} leaves ${sum} latent scalars, of which hla's keys take ${rankK + 2 * rankFirst}`
    : { kind: 'hla', rankK, rankV, rankFirst, windowTokens: PUBLISHED_WINDOW_TOKENS };
}

/** Scalars of matrices of a row's width by the latents of each loop, in all layers. */
const matrixScalars = (g: Geometry, width: number, { rankK = 0, rankV = 0, rankFirst = 0 }: Codec): number =>
  g.layers * width * ((g.loops - 1) * (rankK + rankV) + 2 * rankFirst);

export const hla: CodecSpec = {
  title: 'HLA, one rotated latent of the later loops, one of the first, and an exact window',
  paths: ['rotated'],
  settings: ['rankK', 'rankV', 'rankFirst', 'windowTokens'],
  latentFor: 'all-heads',
  loopAxis: true,
  hybrid: true,
  closes: 'last-loop',
  refusesEviction: 'its latents are those of all tokens',
  suffix: ({ windowTokens }) => (windowTokens === PUBLISHED_WINDOW_TOKENS ? '' : `-w${windowTokens}`),
  ratio: (g, codec) => (2 * g.loops * g.kvHeads * g.headDim) / scalars(codec),
  publishedRatios: (g) => (isOuroStack(g) ? [PUBLISHED_RATIO] : []),
  fromRatio: ofRatio,
  refuse: refusal,
  core: (g, core, codec, choice) => {
    const { first, shared } = ranksOfLoops(codec);
    const block = sharedByLoops(core);
    const { storage, groupSize } = choice;
    return [
      ...latentTensors(block, 1, shared.rankK, shared.rankV, choice),
      cacheTensor(block, 'first-key-latent', 1, first.rankK, storage, groupSize),
      cacheTensor(block, 'first-value-latent', 1, first.rankV, storage, groupSize),
      ...(codec.windowTokens ? windowTensors(core, g, choice, codec.windowTokens) : []),
    ];
  },
  // E: attention's input to latents, of each loop. A and B: latents to queries and outputs of each loop and head.
  parameters: (g, codec) => matrixScalars(g, g.hidden, codec) + matrixScalars(g, g.kvHeads * g.headDim, codec),
  // E, as the input that it encodes is that of all heads.
  wholeParameters: (g, codec) => matrixScalars(g, g.hidden, codec),
};

function refusal(g: Geometry, { rankK, rankV, rankFirst, windowTokens }: Codec): string | undefined {
  if (g.loops < 2) return ONE_LOOP;
  const { headDim: d, kvHeads, loops } = g;
  const later = (loops - 1) * kvHeads * d;
  for (const [name, rank, most, limit] of [
    ['rank K', rankK, later, '(T−1)·H·d'],
    ['rank V', rankV, later, '(T−1)·H·d'],
    ['first rank', rankFirst, kvHeads * d, 'H·d'],
  ] as const) {
    if (rank === undefined || !Number.isInteger(rank) || rank < 1)
      return `the ${name} must be a whole number of at least 1`;
    if (rank > most) return `the ${name} ${rank} exceeds ${limit} = ${most}, the width of what it compresses`;
    if (name !== 'rank V' && rank % d !== 0)
      return `the ${name} ${rank} is no multiple of the head width ${d}, whose frequencies its pairs take in turn`;
  }
  return windowTokens === undefined || !Number.isInteger(windowTokens) || windowTokens < 0
    ? `hla keeps a whole number of exact tokens of at least 0, not ${windowTokens}`
    : undefined;
}
