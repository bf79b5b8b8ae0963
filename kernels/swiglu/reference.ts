/** The float64 reference of swiglu, and the comparison of its outputs with it. */
import { dim, type Checker } from '../reference.js';
import { rowsIn, type Input } from '../shared/dense/rows.reference.js';
import type { Shape } from '../spec.js';

export const reference: Checker = rowsIn('output', { input: (shape) => 2 * dim(shape, 'width') }, (s, input, row) =>
  swigluRow(s.call.shape, input, row),
);

export function swigluRow(shape: Shape, input: Input, row: number): number[] {
  const width = dim(shape, 'width');
  const data = input('input');
  return Array.from({ length: width }, (_, i) => {
    const gate = data(row * 2 * width + i);
    return (gate / (1 + Math.exp(-gate))) * data(row * 2 * width + width + i);
  });
}
