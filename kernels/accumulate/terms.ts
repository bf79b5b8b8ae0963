import { elementwise, scalars } from '../shared/dense/elementwise.terms.js';
import type { KernelSpec } from '../spec.js';
import { unlisted } from '../tuned.js';

/**
 * The sum over loops of `width` scalars of `rows` tokens, each loop's by one factor: `begin` writes the first loop's,
 * `add` adds another's.
 */
export const spec: KernelSpec<'rows' | 'width'> = {
  dims: ['rows', 'width'],
  variants: ['begin', 'add'],
  ...elementwise((s, v) => scalars(s) * (v === 'begin' ? 1 : 2), scalars, 2),
  // On the way of the rotation, which has the rows at hand. The sums are f32, as an accumulator has to be.
  tuned: (s, v) => ({ ...unlisted('small', 4 * scalars(s) * (v === 'begin' ? 1 : 2)), inside: true }),
};
