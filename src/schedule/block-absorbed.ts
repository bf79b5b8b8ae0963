/**
 * Arithmetic of block-absorbed attention: full RoPE on latents without rebuilding K.
 *
 * The score of a cached token at position n is u_n · c_n with u_n = Σ_m cos(θ_m n) a_m + sin(θ_m n) b_m over the d/2
 * rotary pairs m. Inside a block of B positions centred on n0, the slow pairs (θ_m·B/2 ≤ φ) are combined from few
 * functions of the offset δ = n − n0, the same in every block; the `exactPairs` fastest are evaluated as they are.
 * Functions come in even and odd halves, so ±δ share their products (a butterfly).
 */

export interface BlockPlan {
  /** Positions in a block (B). */
  readonly blockTokens: number;
  /** Fast rotary pairs that are evaluated exactly. */
  readonly exactPairs: number;
  /** Even and odd functions for the other pairs (M). */
  readonly functions: number;
  /** Multiply-adds per cached token, query head and latent component, set-up of the block included. */
  readonly macsPerRank: number;
}

/** J_n(x) by its power series; relative rounding stays below 1e-7 for the arguments used (|x| ≤ 20). */
function besselJ(n: number, x: number): number {
  let term = 1;
  for (let k = 1; k <= n; k++) term *= x / (2 * k);
  let sum = term;
  for (let k = 1; k < 80; k++) {
    term *= -((x / 2) ** 2) / (k * (n + k));
    sum += term;
    if (Math.abs(term) < 1e-12 && k > x) break;
  }
  return sum;
}

/** Largest phase θ_m·B/2 that is expanded; beyond it the exact pair is always cheaper. */
const MAX_PHASE = 20;

/**
 * Functions that represent cos(φx) (parity 0) or sin(φx) (parity 1) on [−1, 1] within `tolerance`: the Jacobi–Anger
 * expansion cos(φx) = J_0 + 2 Σ (−1)^k J_2k(φ) T_2k(x) is cut where what is left is smaller.
 */
function functionsFor(phase: number, parity: 0 | 1, tolerance: number): number {
  let count = 0;
  for (; count < 40; count++) {
    let tail = 0;
    // Past the last term that matters each next one is smaller by far: a few bound the rest.
    for (let k = count; k < count + 4 && tail <= tolerance; k++) tail += 2 * Math.abs(besselJ(2 * k + parity, phase));
    if (2 * count > phase && tail <= tolerance) break;
  }
  return count;
}

const plans = new Map<string, BlockPlan>();

/**
 * The cheapest one-level block plan for a rotary base.
 * @param theta rotary base (1e6 for Ouro)
 * @param headDim d, even
 * @param tolerance largest error of any rotary pair's phase function
 */
export function blockPlan(theta: number, headDim: number, tolerance = 1e-5): BlockPlan {
  const key = `${theta}/${headDim}/${tolerance}`;
  const known = plans.get(key);
  if (known) return known;
  const pairs = headDim / 2;
  let best: BlockPlan | undefined;
  for (const blockTokens of [32, 64, 128, 256]) {
    for (let exactPairs = 0; exactPairs <= pairs; exactPairs++) {
      const phase = exactPairs < pairs ? (theta ** (-exactPairs / pairs) * blockTokens) / 2 : 0;
      if (phase > MAX_PHASE) continue;
      const functions = exactPairs < pairs ? functionsFor(phase, 0, tolerance) + functionsFor(phase, 1, tolerance) : 0;
      const macsPerRank = exactPairs + functions / 2 + 2 + (4 * pairs + functions * (pairs - exactPairs)) / blockTokens;
      if (!best || macsPerRank < best.macsPerRank) best = { blockTokens, exactPairs, functions, macsPerRank };
    }
  }
  if (!best) throw new Error(`no block plan for theta ${theta}`);
  plans.set(key, best);
  return best;
}
