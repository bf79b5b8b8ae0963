import {
  rows,
  latentRows,
  queries,
  partialBytes,
  scoreBytes,
  unpacking,
  latentTerms,
  withScores,
} from '../shared/attention.terms.js';
import { field, padded, evenRow, storedIn, type KernelSpec } from '../spec.js';
import { unlisted } from '../tuned.js';

/**
 * Split-KV decode attention over latents with K rebuilt in workgroup memory and rotated; V stays latent (its
 * up-projection is applied after the merge). `+scores` also writes every score.
 */
export const spec: KernelSpec = {
  dims: ['sequences', 'kvHeads', 'latentHeads', 'group', 'context', 'rankK', 'rankV', 'headDim', 'groupSize', 'splits'],
  variants: withScores,
  work: (s, v) => {
    const [rk, rv, d, group] = [field(s, 'rankK'), field(s, 'rankV'), field(s, 'headDim'), field(s, 'group')];
    const product = rows(s) * 2 * d * rk;
    return {
      readBytes:
        latentRows(s) * (storedIn(s, v, rk) + storedIn(s, v, rv)) +
        field(s, 'kvHeads') * d * (evenRow(rk) * 2 + 4) +
        queries(s) * d * 4,
      writeBytes: partialBytes(s, rv) + scoreBytes(s, v),
      flops: product + rows(s) * (3 * d + group * 2 * (d + rv)) + unpacking(latentRows(s), v, rk + rv),
      matrixFlops: product,
    };
  },
  // Latent pairs are staged in powers of two, at least 16 and at most 256 at a time.
  terms: (s, v) => {
    const pairs = evenRow(field(s, 'rankK')) / 2;
    const step = Math.min(256, Math.max(16, 2 ** Math.ceil(Math.log2(Math.max(1, pairs)))));
    return latentTerms(s, spec.work(s, v), rows(s) * 4 * field(s, 'headDim') * padded(pairs, step));
  },
  // Rebuilt keys stay on chip. Values of heads that share a latent are a matrix product, those of one head are not.
  tuned: (s, v) => {
    const [rv, d, group] = [field(s, 'rankV'), field(s, 'headDim'), field(s, 'group')];
    const { readBytes, matrixFlops } = spec.work(s, v);
    const shared = field(s, 'latentHeads') < field(s, 'kvHeads') || group > 1;
    const values = rows(s) * group * 2 * rv;
    return unlisted('latent-attention', readBytes - queries(s) * d * 2 + queries(s) * rv * 2 + scoreBytes(s, v), {
      matrix: matrixFlops + (shared ? values : 0),
      vector: rows(s) * (3 * d + group * 2 * d) + (shared ? 0 : values),
      rows: field(s, 'sequences') * field(s, 'latentHeads'),
    });
  },
};
