import { elementwise } from '../shared/elementwise.terms.js';
import { field, type KernelSpec } from '../spec.js';
import { listed } from '../tuned.js';

/** y *= sigmoid(g), `width` scalars a row. */
export const spec: KernelSpec = {
  dims: ['rows', 'width'],
  variants: ['f32'],
  ...elementwise(
    (s) => 2 * field(s, 'rows') * field(s, 'width'),
    (s) => field(s, 'rows') * field(s, 'width'),
    4,
  ),
  tuned: (s) => listed('activation', { tokens: field(s, 'rows'), width: field(s, 'width') }),
};
