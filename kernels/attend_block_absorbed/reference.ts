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
import { dim, dimsOf, type Checker, type Subject } from '../reference.js';
import { attendedRow, cachedRows, queryHeads, runOf, withScores } from '../shared/attention/attention.reference.js';
import { basisOf } from '../shared/block/block.reference.js';
import { padded } from '../spec.js';

/** phi of a call, as its table has it. */
function phiOf(s: Subject): (offset: number) => { even: number[]; odd: number[] } {
  const basis = basisOf(s);
  const [even, odd] = [basis.even, basis.odd].map((f) => basis.exactPairs + f.directions.length) as [number, number];
  const table = phiTable(s.options.ropeBase ?? DEFAULTS.ropeBase, dim(s.call.shape, 'headDim'), basis);
  const width = padded(even, 4) + padded(odd, 4);
  return (offset) => ({
    even: [...table.subarray(offset * width, offset * width + even)],
    odd: [...table.subarray(offset * width + padded(even, 4), offset * width + padded(even, 4) + odd)],
  });
}

/**
 * Rows of query heads, counted over all sequences, over the rings of their sequences, from the basis of their blocks:
 * s(n0 + δ) = Σ_j φ_j(δ) basis_j · c, odd functions with the sign of δ.
 */
export const reference: Checker = {
  outputs: ['partials', 'scores'],
  rows: queryHeads,
  row: (s, head) => {
    const dims = dimsOf<'attend_block_absorbed'>(s);
    const { kvHeads, latentHeads, group, rankK, rankV, blockTokens, functions } = dims;
    const run = runOf(s);
    const [keys, values] = [cachedRows(s, 'keys', rankK, run), cachedRows(s, 'values', rankV, run)];
    const scale = s.options.scale ?? dims.headDim ** -0.5;
    const phi = phiOf(s);
    const basis = s.input('basis');
    const kvRow = Math.floor(head / group);
    const sequence = Math.floor(kvRow / kvHeads);
    const row = latentHeads === 1 ? sequence : kvRow;
    const tokens = run.tokens(sequence).filter(({ pinned }) => !pinned);
    const half = blockTokens / 2;
    const quads = Math.ceil(rankK / 4);
    const stride = blockBasisScalars(1, rankK, { blockTokens: 1, functions });
    // Of a sequence, as the basis is laid out.
    const blocks = bufferOf(s.plan, 'basis').bytes / (4 * stride * queryHeads(dims));
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
      for (let x = 0; x < rankK; x++) dot += (u[x] as number) * keys(row, slot, x);
      return scale * dot;
    });
    return withScores(
      s,
      head,
      run,
      attendedRow(tokens, scores, rankV, (slot, i) => values(row, slot, i)),
    );
  },
};
