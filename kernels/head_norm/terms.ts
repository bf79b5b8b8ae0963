import { elementwise } from '../shared/dense/elementwise.terms.js';
import { field, type KernelSpec, type Shape } from '../spec.js';
import { listed } from '../tuned.js';

const scalars = (s: Shape): number => field(s, 'rows') * field(s, 'heads') * field(s, 'headDim');

/** x = n(x) over each head of `rows` queries or keys, which have one weight; a head may be the whole row. */
export const spec: KernelSpec<'rows' | 'heads' | 'headDim'> = {
  dims: ['rows', 'heads', 'headDim'],
  variants: ['f32'],
  ...elementwise((s) => scalars(s) + field(s, 'headDim'), scalars, 4),
  tuned: (s) => listed('norm', { tokens: field(s, 'rows') * field(s, 'heads'), width: field(s, 'headDim') }),
};
