/**
 * Block-absorbed attention in float64, step by step: the vectors of every rotary pair, the basis of a block, scores
 * from a basis. The specification of block_vectors, block_basis and attend_block_absorbed; the three after each other
 * are held against attention over rebuilt keys with exact angles (attendLatentRow).
 *
 * Error of the score of all three, relative to ‖q‖·‖k‖ of the head (k: the rebuilt key, before rotation):
 *
 * - A pair's cosine and sine may each be off by e (the basis is cut at e = 1e-5/√2), so pair m's part of the score is
 * off by at most
 *   √2 e |q_m| |k_m|, and the sum of |q_m| |k_m| is at most ‖q‖·‖k‖: 1e-5. It is reached only by a query and a key that
 *   both lie in the worst pair, at the worst offset of the block.
 * - The angle of a block's centre is the sum of two angles whose cosine and sine are rounded from float64: an error of
 * at most
 *   about 4 · 2^-24 ≈ 2.4e-7, at any position. (θ n computed in f32 would be off by up to n 2^-24: 6e-2 at a million.)
 * - Sums in f32 over pairs and functions: 2^-24 times the square root of a few hundred additions, about 1e-6, of the
 * sizes of their
 *   terms, which are those of the parts of ‖q‖·‖w‖·‖c‖.
 */
import { rotaryFrequencies } from '../../gpu/rotary.js';
import { blockBasisScalars } from '../../kernels/block_basis/terms.js';
import { blockComponents } from '../../kernels/block_vectors/terms.js';
import { psiTable, type BlockBasis } from '../../schedule/block-basis.js';
import { evenRow } from '../../kernels/spec.js';
import type { Shape } from '../../kernels/spec.js';
import type { Scalars } from '../inputs.js';
import { tokensOf, weightedSum, type CachedRows, type Run } from './attention.js';

type Dims = Readonly<Record<string, number>>;

/** Vectors of one pair of a query head, [component] (a, b), the mean and padding after the latents'. */
export function blockVectorsRow(
  shape: Shape,
  adjacent: boolean,
  group: number,
  input: (name: string) => Scalars,
  head: number,
  pair: number,
): number[] {
  const { kvHeads, rankK, headDim } = shape as Dims as Record<'kvHeads' | 'rankK' | 'headDim', number>;
  const [i, k] = adjacent ? [2 * pair, 2 * pair + 1] : [pair, pair + headDim / 2];
  const kvHead = Math.floor(head / group) % kvHeads;
  const w = (row: number, x: number): number =>
    x < rankK
      ? input('weights')((kvHead * headDim + row) * evenRow(rankK) + x)
      : x === rankK
        ? input('means')(kvHead * headDim + row)
        : 0;
  const [first, second] = [input('queries')(head * headDim + i), input('queries')(head * headDim + k)];
  return Array.from({ length: blockComponents(rankK) }, (_, x) => [
    first * w(i, x) + second * w(k, x),
    second * w(i, x) - first * w(k, x),
  ]).flat();
}

/**
 * Basis vectors of one block and quad of components of a query head, [function][component of the quad], or past the
 * last quad its mean, [function], from its vectors: every pair's vectors turned to the block's centre, and what the
 * functions take of them (psi, as the kernel reads it).
 * @param centre position of the middle of the block
 */
export function blockBasisRow(
  shape: Shape,
  ropeBase: number,
  basis: BlockBasis,
  vectors: Scalars,
  head: number,
  centre: number,
  quad: number,
): number[] {
  const { rankK, headDim } = shape as Dims as Record<'rankK' | 'headDim', number>;
  const { exactPairs, even, odd } = basis;
  const components = blockComponents(rankK);
  const psi = psiTable(headDim, basis);
  const more = even.directions.length + odd.directions.length;
  const width = Math.ceil(more / 4) * 4;
  const mean = quad === Math.ceil(rankK / 4);
  const own = Array.from({ length: 2 * exactPairs + more }, () => (mean ? [0] : [0, 0, 0, 0]));
  rotaryFrequencies(ropeBase, headDim).forEach((t, m) => {
    const [cosine, sine] = [Math.cos(t * centre), Math.sin(t * centre)];
    for (let e = 0; mean ? e < 1 : e < 4 && 4 * quad + e < rankK; e++) {
      const at = 2 * (((head * headDim) / 2 + m) * components + (mean ? rankK : 4 * quad + e));
      const [a, b] = [vectors(at), vectors(at + 1)];
      const [turnedA, turnedB] = [cosine * a + sine * b, cosine * b - sine * a];
      const add = (j: number, x: number): void =>
        void ((own[j] as number[])[e] = ((own[j] as number[])[e] as number) + x);
      if (m < exactPairs) {
        add(m, turnedA);
        add(exactPairs + even.directions.length + m, turnedB);
        continue;
      }
      const share = (j: number): number => psi[(m - exactPairs) * width + j] as number;
      even.directions.forEach((_, j) => add(exactPairs + j, share(j) * turnedA));
      odd.directions.forEach((_, j) =>
        add(2 * exactPairs + even.directions.length + j, share(even.directions.length + j) * turnedB),
      );
    }
  });
  return own.flat();
}

/**
 * Output of one query head (counted over all sequences) over the rings of its sequence, and its scores by slot, from
 * the basis of its blocks: s(n0 + δ) = Σ_j φ_j(δ) basis_j · c, odd functions with the sign of δ.
 * @param blocks of a sequence, as the basis is laid out
 */
export function attendBlockRow(
  shape: Shape,
  scale: number,
  phi: (offset: number) => { even: readonly number[]; odd: readonly number[] },
  basis: Scalars,
  blocks: number,
  caches: Record<'keys' | 'values', CachedRows>,
  run: Run,
  head: number,
): { output: number[]; scores: Map<number, number> } {
  const { kvHeads, latentHeads, group, rankK, rankV, blockTokens, functions } = shape as Dims as Record<
    'kvHeads' | 'latentHeads' | 'group' | 'rankK' | 'rankV' | 'blockTokens' | 'functions',
    number
  >;
  const kvRow = Math.floor(head / group);
  const sequence = Math.floor(kvRow / kvHeads);
  const row = latentHeads === 1 ? sequence : kvRow;
  const tokens = tokensOf({ ...run.span(sequence), pinned: 0 }, run.pinned, run.capacity);
  const half = blockTokens / 2;
  const quads = Math.ceil(rankK / 4);
  const stride = blockBasisScalars(1, rankK, { blockTokens: 1, functions });
  // Weights of all functions at each place of a block, and the vectors of one block at a time, [function][component,
  // then the mean].
  const weights = Array.from({ length: blockTokens }, (_, place) => {
    const { even, odd } = phi(place >= half ? place - half : half - 1 - place);
    return Float64Array.from([...even, ...odd.map((x) => (place >= half ? x : -x))]);
  });
  const vectors = new Float64Array(functions * (rankK + 1));
  const u = new Float64Array(rankK + 1);
  const scores = Float64Array.from(tokens, ({ slot }, i) => {
    const place = i % blockTokens;
    if (place === 0) {
      const at = (head * blocks + i / blockTokens) * stride;
      for (let j = 0; j < functions; j++) {
        for (let x = 0; x < rankK; x++)
          vectors[j * (rankK + 1) + x] = basis(at + (Math.floor(x / 4) * functions + j) * 4 + (x % 4));
        vectors[j * (rankK + 1) + rankK] = basis(at + (quads * functions + j) * 4);
      }
    }
    const own = weights[place] as Float64Array;
    u.fill(0);
    for (let j = 0; j < functions; j++) {
      const weight = own[j] as number;
      for (let x = 0; x <= rankK; x++) u[x] = (u[x] as number) + weight * (vectors[j * (rankK + 1) + x] as number);
    }
    let dot = u[rankK] as number;
    for (let x = 0; x < rankK; x++) dot += (u[x] as number) * caches.keys(row, slot, x);
    return scale * dot;
  });
  return {
    output: weightedSum(scores, rankV, (t, i) => caches.values(row, (tokens[t] as { slot: number }).slot, i)),
    scores: new Map(tokens.map(({ slot }, t) => [slot, scores[t] as number])),
  };
}
