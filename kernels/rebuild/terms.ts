import { rows, latentRows, unpacking } from '../shared/attention/attention.terms.js';
import { field, evenRow, STORAGES, storedIn, launchAnd, type KernelSpec } from '../spec.js';
import { unlisted } from '../tuned.js';

/**
 * Rebuilds K (`+rope`: rotated) or V (`+plain`) of one layer and loop for the whole context into f16 rows, from latents
 * in their storage.
 */
export const spec: KernelSpec<'sequences' | 'kvHeads' | 'latentHeads' | 'context' | 'rank' | 'headDim' | 'groupSize'> =
  {
    sources: ['rebuild', 'rebuild_matrix'],
    dims: ['sequences', 'kvHeads', 'latentHeads', 'context', 'rank', 'headDim', 'groupSize'],
    variants: STORAGES.flatMap((s) => [`${s}+rope`, `${s}+plain`]),
    work: (s, v) => {
      const [r, d] = [field(s, 'rank'), field(s, 'headDim')];
      const product = rows(s) * 2 * d * r;
      return {
        readBytes: latentRows(s) * storedIn(s, v, r) + field(s, 'kvHeads') * d * (evenRow(r) * 2 + 4),
        writeBytes: rows(s) * d * 2,
        flops: product + (v.endsWith('+rope') ? rows(s) * 3 * d : 0) + unpacking(latentRows(s), v, r),
        matrixFlops: product,
      };
    },
    terms: (s, v) => launchAnd(spec.work(s, v), 'readBytes', 'writeBytes', 'flops'),
    tuned: (s, v) => {
      const { readBytes, writeBytes, matrixFlops } = spec.work(s, v);
      return unlisted('product', readBytes + writeBytes, { matrix: matrixFlops });
    },
  };
