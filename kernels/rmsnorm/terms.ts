import { elementwise, scalars } from '../shared/dense/elementwise.terms.js';
import { field, type KernelSpec } from '../spec.js';
import { listed } from '../tuned.js';

/** `norm`: y = n(x). `norm-add`: x += n(y) (sandwich norm). `add`: x += y. RMSNorm over the width. */
export const spec: KernelSpec<'rows' | 'width'> = {
  sources: ['rmsnorm', 'add'],
  dims: ['rows', 'width'],
  variants: ['norm', 'norm-add', 'add'],
  ...elementwise((s, v) => scalars(s) * (v === 'norm' ? 1 : 2) + (v === 'add' ? 0 : field(s, 'width')), scalars, 4),
  // Stacks add the residual inside the norm that follows, and a bias inside the product before.
  tuned: (s, v) => (v === 'add' ? null : listed('norm', { tokens: field(s, 'rows'), width: field(s, 'width') })),
};
