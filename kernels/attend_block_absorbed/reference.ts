/**
 * Block-absorbed attention in float64, step by step: the vectors of every rotary pair, the basis of a block, scores
 * from a basis. The specification of block_vectors, block_basis and attend_block_absorbed; a test compares the three in
 * sequence with attention over rebuilt keys with exact angles (attendLatentRow).
 *
 * Error of the score of all three, relative to ‖q‖·‖k‖ of the head (k: the rebuilt key, before rotation):
 *
 * - A pair's cosine and sine may each be off by e (the basis is cut at e = 1e-5/√2), so pair m's part of the score is
 *   off by at most √2 e |q_m| |k_m|, and the sum of |q_m| |k_m| is at most ‖q‖·‖k‖: 1e-5. Only a query and a key that
 *   are both in the worst pair reach it, at the worst offset of the block.
 * - The angle of a block's centre is the sum of two angles whose cosine and sine are rounded from float64: an error of
 *   at most about 4 · 2^-24 ≈ 2.4e-7, at any position. (θ n computed in f32 would be off by up to n 2^-24: 6e-2 at a
 *   million.)
 * - Sums in f32 over pairs and functions: 2^-24 times the square root of a few hundred additions, about 1e-6, relative
 *   to their terms, which are the parts of ‖q‖·‖w‖·‖c‖.
 */
import { bufferOf } from '../host/plan.js';
import { phiTable } from '../shared/block/block-basis.js';
import { blockBasisScalars } from '../block_basis/terms.js';
import { DEFAULTS } from '../launch.js';
import { dim, type Checker, type Subject, type Scalars } from '../reference.js';
import {
  cachedRows,
  queryHeads,
  runOf,
  weightedSum,
  withScores,
  type CachedRows,
  type Run,
} from '../shared/attention/attention.reference.js';
import { basisOf, type Dims } from '../shared/block/block.reference.js';
import type { Shape } from '../spec.js';

/** phi of a call, as its table has it. */
function phiOf(s: Subject): (offset: number) => { even: number[]; odd: number[] } {
  const basis = basisOf(s);
  const [even, odd] = [basis.even, basis.odd].map((f) => basis.exactPairs + f.directions.length) as [number, number];
  const table = phiTable(s.options.ropeBase ?? DEFAULTS.ropeBase, dim(s.call.shape, 'headDim'), basis);
  const padded = (n: number): number => Math.ceil(n / 4) * 4;
  const width = padded(even) + padded(odd);
  return (offset) => ({
    even: [...table.subarray(offset * width, offset * width + even)],
    odd: [...table.subarray(offset * width + padded(even), offset * width + padded(even) + odd)],
  });
}

export const reference: Checker = {
  outputs: ['partials', 'scores'],
  rows: queryHeads,
  row: (s, row) => {
    const { shape } = s.call;
    const [rankK, rankV] = [dim(shape, 'rankK'), dim(shape, 'rankV')];
    const run = runOf(s);
    const caches = { keys: cachedRows(s, 'keys', rankK, run), values: cachedRows(s, 'values', rankV, run) };
    const blocks =
      bufferOf(s.plan, 'basis').bytes /
      (4 * blockBasisScalars(1, rankK, { blockTokens: 1, functions: dim(shape, 'functions') }) * queryHeads(shape));
    return withScores(
      s,
      row,
      run,
      attendBlockRow(
        shape,
        s.options.scale ?? dim(shape, 'headDim') ** -0.5,
        phiOf(s),
        s.input('basis'),
        blocks,
        caches,
        run,
        row,
      ),
    );
  },
};

/**
 * Output of one query head (counted over all sequences) over the rings of its sequence, and its scores by slot, from
 * the basis of its blocks: s(n0 + δ) = Σ_j φ_j(δ) basis_j · c, odd functions with the sign of δ.
 * @param blocks of a sequence, as the basis is laid out
 */
function attendBlockRow(
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
  const tokens = run.tokens(sequence).filter(({ pinned }) => !pinned);
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
