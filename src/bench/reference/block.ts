/**
 * Block-absorbed attention in float64, without blocks: the vectors of every rotary pair, and scores from exact angles. The
 * specification of block_vectors and attend_block_absorbed.
 *
 * Error of the kernel's score, relative to ‖q‖·‖k‖ of the head (k: the rebuilt key, before rotation):
 *
 * - A pair's cosine and sine may each be off by e (the basis is cut at e = 1e-5/√2), so pair m's part of the score is off by at most
 *   √2 e |q_m| |k_m|, and the sum of |q_m| |k_m| is at most ‖q‖·‖k‖: 1e-5. It is reached only by a query and a key that
 *   both lie in the worst pair, at the worst offset of the block.
 * - The angle of a block's centre is the sum of two angles whose cosine and sine are rounded from float64: an error of at most
 *   about 4 · 2^-24 ≈ 2.4e-7, at any position. (θ n computed in f32 would be off by up to n 2^-24: 6e-2 at a million.)
 * - Sums in f32 over pairs and functions: 2^-24 times the square root of a few hundred additions, about 1e-6, of the sizes of their
 *   terms, which are those of the parts of ‖q‖·‖w‖·‖c‖.
 */
import { rotaryFrequencies } from '../../gpu/rotary.js';
import { blockComponents } from '../../schedule/attention-kernels.js';
import { evenRow } from '../../schedule/kernel-spec.js';
import type { Shape } from '../../schedule/kernels.js';
import type { Scalars } from '../inputs.js';
import { tokensOf, weightedSum, type CachedRows, type Run } from './attention.js';

type Dims = Readonly<Record<string, number>>;

/** Vectors of one pair of a query head, [component] (a, b), the mean and padding after the latents'. */
export function blockVectorsRow(shape: Shape, adjacent: boolean, group: number, input: (name: string) => Scalars, head: number, pair: number): number[] {
  const { kvHeads, rankK, headDim } = shape as Dims as Record<'kvHeads' | 'rankK' | 'headDim', number>;
  const [i, k] = adjacent ? [2 * pair, 2 * pair + 1] : [pair, pair + headDim / 2];
  const kvHead = Math.floor(head / group) % kvHeads;
  const w = (row: number, x: number): number =>
    x < rankK ? input('weights')((kvHead * headDim + row) * evenRow(rankK) + x) : x === rankK ? input('means')(kvHead * headDim + row) : 0;
  const [first, second] = [input('queries')(head * headDim + i), input('queries')(head * headDim + k)];
  return Array.from({ length: blockComponents(rankK) }, (_, x) => [first * w(i, x) + second * w(k, x), second * w(i, x) - first * w(k, x)]).flat();
}

/** Output of one query head (counted over all sequences) over the rings of its sequence, from its vectors. */
export function attendBlockRow(shape: Shape, scale: number, ropeBase: number, vectors: Scalars, caches: Record<'keys' | 'values', CachedRows>, run: Run, head: number): number[] {
  const { kvHeads, latentHeads, group, rankK, rankV, headDim } = shape as Dims as Record<'kvHeads' | 'latentHeads' | 'group' | 'rankK' | 'rankV' | 'headDim', number>;
  const kvRow = Math.floor(head / group);
  const sequence = Math.floor(kvRow / kvHeads);
  const row = latentHeads === 1 ? sequence : kvRow;
  const tokens = tokensOf({ ...run.span(sequence), pinned: 0 }, run.pinned, run.capacity);
  const theta = rotaryFrequencies(ropeBase, headDim);
  const components = blockComponents(rankK);
  const own = Float64Array.from({ length: headDim * components }, (_, i) => vectors(head * headDim * components + i));
  const u = new Float64Array(rankK + 1);
  const scores = Float64Array.from(tokens, ({ slot, position }) => {
    u.fill(0);
    theta.forEach((t, m) => {
      const [cosine, sine] = [Math.cos(t * position), Math.sin(t * position)];
      for (let x = 0; x <= rankK; x++) {
        const at = 2 * (m * components + x);
        u[x] = (u[x] as number) + cosine * (own[at] as number) + sine * (own[at + 1] as number);
      }
    });
    let dot = u[rankK] as number;
    for (let x = 0; x < rankK; x++) dot += (u[x] as number) * caches.keys(row, slot, x);
    return scale * dot;
  });
  return weightedSum(scores, rankV, (t, i) => caches.values(row, (tokens[t] as { slot: number }).slot, i));
}
