import { field, evenRow, launchAnd, type KernelSpec } from '../spec.js';
import { unlisted } from '../tuned.js';

/**
 * Components of a block vector: the latent's, one for the mean of the keys, whose latent is 1, and padding to an even
 * count.
 */
export const blockComponents = (rankK: number): number => evenRow(rankK + 1);

/**
 * Set-up of block-absorbed attention: a_m = q_m w_m + q_{m+d/2} w_{m+d/2} and b_m = q_{m+d/2} w_m − q_m w_{m+d/2} of
 * every query head, from the rotated query and the key up-projection (f16) with its mean (f32). `heads`: sequences ×
 * query heads.
 */
export const spec: KernelSpec<'heads' | 'kvHeads' | 'rankK' | 'headDim'> = {
  dims: ['heads', 'kvHeads', 'rankK', 'headDim'],
  variants: ['f16'],
  work: (s) => {
    const [heads, rk, d] = [field(s, 'heads'), field(s, 'rankK'), field(s, 'headDim')];
    const vectors = heads * d * blockComponents(rk);
    return {
      readBytes: field(s, 'kvHeads') * d * (evenRow(rk) * 2 + 4) + heads * d * 4,
      writeBytes: vectors * 4,
      flops: 3 * vectors,
      matrixFlops: 0,
    };
  },
  // A workgroup a pair of components of a head.
  terms: (s) => [
    ...launchAnd(spec.work(s, 'f16'), 'readBytes', 'writeBytes'),
    (field(s, 'heads') * field(s, 'headDim')) / 2,
  ],
  tuned: (s) => {
    const { readBytes, flops } = spec.work(s, 'f16');
    return { ...unlisted('latent-attention', readBytes, { vector: flops }), inside: true };
  },
};
