import { elementwise, scalars } from '../shared/dense/elementwise.terms.js';
import { field, type KernelSpec } from '../spec.js';
import { unlisted } from '../tuned.js';

/** x = e + f · the state of the token before, whose own is kept for the next: `width` scalars a row. */
export const spec: KernelSpec<'rows' | 'width'> = {
  dims: ['rows', 'width'],
  variants: ['f32'],
  ...elementwise(
    (s) => 3 * scalars(s) + field(s, 'rows'),
    (s) => 2 * scalars(s),
    1,
  ),
  tuned: (s) => unlisted('small', 2 * 5 * scalars(s)),
};
