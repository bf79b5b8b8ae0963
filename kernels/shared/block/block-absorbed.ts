/**
 * Arithmetic of block-absorbed attention: full RoPE on latents without rebuilding K.
 *
 * The score of a cached token at position n is u_n · c_n with u_n = Σ_m cos(θ_m n) a_m + sin(θ_m n) b_m over the d/2
 * rotary pairs m. Inside a block of B positions centred on n0, the slow pairs are combined from few functions of the
 * offset δ = n − n0, the same in every block; the `exactPairs` fastest are evaluated as they are. Functions come in
 * even and odd halves, so ±δ share their products (a butterfly). The kernel takes its functions from the same basis
 * (block-basis.ts).
 */
import { basesOf, basisWith, type BlockBasis } from './block-basis.js';

export interface BlockPlan {
  /** Positions in a block (B). */
  readonly blockTokens: number;
  /** Fast rotary pairs that are evaluated exactly. */
  readonly exactPairs: number;
  /**
   * Even and odd functions in all, those of the exact pairs (a cosine and a sine each) included: basis vectors of a
   * block (F).
   */
  readonly functions: number;
  /** Multiply-adds of a block's set-up per query head and latent component. */
  readonly setupPerRank: number;
  /** Multiply-adds per cached token, query head and latent component, set-up of the block included. */
  readonly macsPerRank: number;
  readonly basis: BlockBasis;
}

/** Block sizes that the kernel has. In the smallest every pair can be expanded, whatever the rotary base. */
export const BLOCK_SIZES = [32, 64, 128, 256, 512] as const;

/**
 * Score error that a basis stands for, relative to ‖q‖·‖k‖ and for the worst query: a pair's cosine and sine may each
 * be off by this over √2, and the pairs' parts of q and k add up to no more than ‖q‖·‖k‖ (Cauchy–Schwarz).
 */
const TOLERANCE = 1e-5;

/**
 * The cost falls and then rises with the number of exact pairs, with small steps. The search ends after this many plans
 * that cost more than the best.
 */
const PAST_BEST = 3;

/**
 * The numbers that determine a plan: the block's size, its exact pairs, and the functions (even and odd) of the other
 * pairs.
 */
type Sizes = readonly [blockTokens: number, exactPairs: number, more: number];

const sizesOf = ({ blockTokens, exactPairs, even, odd }: BlockBasis): Sizes => [
  blockTokens,
  exactPairs,
  even.directions.length + odd.directions.length,
];

/**
 * Per offset ±δ: every function once, then P ± Q and two products with latents. The basis is computed when it is asked
 * for; prices do not need it.
 */
function planOf([blockTokens, exactPairs, more]: Sizes, headDim: number, makeBasis: () => BlockBasis): BlockPlan {
  const functions = 2 * exactPairs + more;
  const setupPerRank = 2 * headDim + more * (headDim / 2 - exactPairs);
  let made: BlockBasis | undefined;
  return {
    blockTokens,
    exactPairs,
    functions,
    setupPerRank,
    macsPerRank: functions / 2 + 2 + setupPerRank / blockTokens,
    get basis() {
      return (made ??= makeBasis());
    },
  };
}

/**
 * What the search finds for the presets' rotary bases and head widths, by base/width: it takes tens of milliseconds, as
 * long as the rest of a plan. Tested to be what the search finds.
 */
export const SEARCHED: Readonly<Record<string, Sizes>> = {
  '1000000/128': [256, 11, 15],
  '70000000/128': [256, 10, 12],
  '50000/96': [128, 9, 13],
  '500000/64': [128, 6, 10],
  '10000/128': [256, 15, 18],
  '50000/128': [256, 13, 17],
  '500000/128': [256, 11, 16],
  '10000/64': [128, 8, 11],
  '10000/256': [128, 22, 18],
  '100000/52': [128, 6, 9],
  '1000000/90': [256, 9, 12],
};

const plans = new Map<string, BlockPlan>();
/** The default plans, by rotary base and head width: each schedule asks for one. */
const defaults = new Map<number, Map<number, BlockPlan>>();

/**
 * The cheapest one-level block plan for a rotary base.
 * @param theta rotary base (1e6 for Ouro)
 * @param headDim d, even
 * @param blockTokens one of BLOCK_SIZES, or the cheapest of them
 * @param tolerance largest score error relative to ‖q‖·‖k‖
 */
export function blockPlan(
  theta: number,
  headDim: number,
  blockTokens?: number,
  tolerance: number = TOLERANCE,
): BlockPlan {
  const isDefault = blockTokens === undefined && tolerance === TOLERANCE;
  const key = isDefault ? '' : `${theta}/${headDim}/${blockTokens ?? 'any'}/${tolerance}`;
  const known = isDefault ? defaults.get(theta)?.get(headDim) : plans.get(key);
  if (known) return known;
  const searched = isDefault ? SEARCHED[`${theta}/${headDim}`] : undefined;
  const best = searched
    ? planOf(
        searched,
        headDim,
        () => basisWith(theta, headDim, searched[0], searched[1], tolerance / Math.SQRT2) as BlockBasis,
      )
    : searchPlan(theta, headDim, blockTokens === undefined ? BLOCK_SIZES : [blockTokens], tolerance);
  if (isDefault) defaults.set(theta, (defaults.get(theta) ?? new Map<number, BlockPlan>()).set(headDim, best));
  else plans.set(key, best);
  return best;
}

/** The cheapest plan of any of the block sizes. */
export function searchPlan(
  theta: number,
  headDim: number,
  sizes: readonly number[] = BLOCK_SIZES,
  tolerance: number = TOLERANCE,
): BlockPlan {
  let best: BlockPlan | undefined;
  for (const size of sizes) {
    let own: BlockPlan | undefined;
    let dearer = 0;
    for (const basis of basesOf(theta, headDim, size, tolerance / Math.SQRT2)) {
      const plan = planOf(sizesOf(basis), headDim, () => basis);
      if (!own || plan.macsPerRank < own.macsPerRank) [own, dearer] = [plan, 0];
      else if (++dearer === PAST_BEST) break;
    }
    if (own && (!best || own.macsPerRank < best.macsPerRank)) best = own;
  }
  if (!best) throw new Error(`no block plan for theta ${theta} and head width ${headDim}`);
  return best;
}
