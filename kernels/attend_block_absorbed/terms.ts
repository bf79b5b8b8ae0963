import { basisBytes, blocks } from '../block_basis/terms.js';
import {
  rows,
  latentRows,
  queries,
  partialBytes,
  scoreBytes,
  unpacking,
  withScores,
  latentTerms,
} from '../shared/attention/attention.terms.js';
import { field, storedIn, type KernelSpec, type Shape } from '../spec.js';
import { unlisted } from '../tuned.js';

/** Operations of the scores: every function at every offset of either sign, and the products with two latents. */
const scoreFlops = (s: Shape) =>
  queries(s) * blocks(s) * field(s, 'blockTokens') * (field(s, 'functions') + 4) * field(s, 'rankK');

const DIMS = [
  'sequences',
  'kvHeads',
  'latentHeads',
  'group',
  'context',
  'rankK',
  'rankV',
  'headDim',
  'blockTokens',
  'functions',
  'groupSize',
  'splits',
] as const;

/**
 * Split-KV decode attention with full RoPE straight on latents: block by block, the rotated key up-projection is
 * expressed in few functions of the position, so that K is never rebuilt. `blockTokens`: positions of a block;
 * `functions`: functions of the offset in a block, with a basis vector each (shared/block/block-absorbed.ts).
 */
export const spec: KernelSpec<(typeof DIMS)[number]> = {
  sources: ['attend_block_absorbed', 'attend_block_components'],
  dims: DIMS,
  variants: withScores,
  work: (s, v) => {
    const [rk, rv, group] = [field(s, 'rankK'), field(s, 'rankV'), field(s, 'group')];
    const key = scoreFlops(s);
    return {
      readBytes: latentRows(s) * (storedIn(s, v, rk) + storedIn(s, v, rv)) + queries(s) * basisBytes(s),
      writeBytes: partialBytes(s, rv) + scoreBytes(s, v),
      flops: key + rows(s) * group * 2 * rv + unpacking(latentRows(s), v, rk + rv),
      matrixFlops: key,
    };
  },
  terms: (s, v) => [...latentTerms(s, spec.work(s, v), scoreFlops(s)), queries(s) * basisBytes(s)],
  // On matrix units a block's latents meet every function's vector; what follows of it is vector work.
  tuned: (s, v) => {
    const [rk, rv, group] = [field(s, 'rankK'), field(s, 'rankV'), field(s, 'group')];
    const offsets = queries(s) * blocks(s) * field(s, 'blockTokens');
    const values = rows(s) * group * 2 * rv;
    const shared = field(s, 'latentHeads') < field(s, 'kvHeads') || group > 1;
    return unlisted(
      'latent-attention',
      latentRows(s) * (storedIn(s, v, rk) + storedIn(s, v, rv)) + queries(s) * rv * 2 + scoreBytes(s, v),
      {
        matrix: offsets * 2 * field(s, 'functions') * rk + (shared ? values : 0),
        vector: offsets * 2 * field(s, 'functions') + (shared ? 0 : values),
        rows: field(s, 'sequences') * field(s, 'latentHeads'),
      },
    );
  },
};
