import { elementwise, scalars } from '../shared/dense/elementwise.terms.js';
import { field, type KernelSpec } from '../spec.js';
import { listed } from '../tuned.js';

/** silu(gate) · up; `width` is the MLP width, the input holds gate and up side by side. */
export const spec: KernelSpec<'rows' | 'width'> = {
  dims: ['rows', 'width'],
  variants: ['f32'],
  ...elementwise((s) => 2 * scalars(s), scalars, 5),
  tuned: (s) => listed('activation', { tokens: field(s, 'rows'), width: field(s, 'width') }),
};
