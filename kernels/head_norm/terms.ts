import { elementwise, headScalars } from '../shared/dense/elementwise.terms.js';
import { field, type KernelSpec } from '../spec.js';
import { listed } from '../tuned.js';

/** x = n(x) over each head of `rows` queries or keys, which have one weight; a head may be the whole row. */
export const spec: KernelSpec<'rows' | 'heads' | 'headDim'> = {
  dims: ['rows', 'heads', 'headDim'],
  variants: ['f32'],
  ...elementwise((s) => headScalars(s) + field(s, 'headDim'), headScalars, 4),
  tuned: (s) => listed('norm', { tokens: field(s, 'rows') * field(s, 'heads'), width: field(s, 'headDim') }),
};
