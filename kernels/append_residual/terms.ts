import { residualBytes, type ResidualRow } from '../shared/cache/residual.layout.js';
import { field, launchAnd, type KernelSpec, type Shape } from '../spec.js';
import { unlisted } from '../tuned.js';

const rowOf = (s: Shape): ResidualRow => ({
  headDim: field(s, 'headDim'),
  loops: field(s, 'loops'),
  anchorBits: field(s, 'anchorBits'),
  residualGroup: field(s, 'residualGroup'),
});

/** Of a scalar: range, code, rebuilding; of one before the anchor also two products and the residual. */
const CODE_FLOPS = 16;

/**
 * Codes a token's K or V rows of all loops that share an anchor, and writes them to the cache: `heads` rows of
 * `headDim` scalars a loop for each of `rows` tokens.
 */
export const spec: KernelSpec<'rows' | 'heads' | 'headDim' | 'loops' | 'anchorBits' | 'residualGroup'> = {
  dims: ['rows', 'heads', 'headDim', 'loops', 'anchorBits', 'residualGroup'],
  variants: ['f32'],
  work: (s) => {
    const written = field(s, 'rows') * field(s, 'heads');
    const scalars = written * field(s, 'loops') * field(s, 'headDim');
    return {
      readBytes: 4 * scalars,
      writeBytes: written * residualBytes(rowOf(s)),
      flops: CODE_FLOPS * scalars,
      matrixFlops: 0,
    };
  },
  terms: (s, v) => launchAnd(spec.work(s, v), 'readBytes', 'writeBytes'),
  // The rows wait in 16 bits.
  tuned: (s, v) => {
    const { readBytes, writeBytes } = spec.work(s, v);
    return unlisted('small', readBytes / 2 + writeBytes);
  },
};
