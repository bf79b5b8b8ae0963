import { elementwise, scalars } from '../shared/dense/elementwise.terms.js';
import { field, type KernelSpec } from '../spec.js';
import { listed } from '../tuned.js';

/**
 * `f32`: y *= sigmoid(g), `width` scalars a row. `mix`: y = sigmoid(g + b) y + (1 - sigmoid(g + b)) x, one g a row and
 * one b a head. `change`: y = x + exp(-softplus(g + b) e^r) y, a b and an r a column.
 */
export const spec: KernelSpec<'rows' | 'width'> = {
  sources: ['gate', 'gate_mix', 'gate_change'],
  dims: ['rows', 'width'],
  variants: ['f32', 'mix', 'change'],
  ...elementwise(
    (s, v) => {
      if (v === 'change') return 3 * scalars(s) + 2 * field(s, 'width');
      return 2 * scalars(s) + (v === 'mix' ? field(s, 'rows') : 0);
    },
    scalars,
    4,
  ),
  tuned: (s) => listed('activation', { tokens: field(s, 'rows'), width: field(s, 'width') }),
};
