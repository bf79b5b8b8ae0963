/** The float64 reference of swiglu, and the comparison of its outputs with it. */
import type { Checker } from '../reference.js';
import { rowsIn, widthOf } from '../shared/dense/rows.reference.js';

export const reference: Checker = rowsIn('output', { input: (shape) => 2 * widthOf(shape) }, (s, input, row) => {
  const width = widthOf(s.call.shape);
  const data = input('input');
  return Array.from({ length: width }, (_, i) => {
    const gate = data(row * 2 * width + i);
    return (gate / (1 + Math.exp(-gate))) * data(row * 2 * width + width + i);
  });
});
