import { elementwise } from '../shared/elementwise.terms.js';
import { field, type KernelSpec } from '../spec.js';

/** silu(gate) · up; `width` is the MLP width, the input holds gate and up side by side. */
export const spec: KernelSpec = {
  dims: ['rows', 'width'],
  variants: ['f32'],
  ...elementwise(
    (s) => 2 * field(s, 'rows') * field(s, 'width'),
    (s) => field(s, 'rows') * field(s, 'width'),
    5,
  ),
};
