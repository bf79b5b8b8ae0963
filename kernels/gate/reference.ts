/** The float64 reference of gate, and the comparison of its outputs with it. */
import type { Checker } from '../reference.js';
import { rowsIn, widthOf } from '../shared/rows.reference.js';

export const reference: Checker = rowsIn('target', { input: widthOf }, (s, input, row) => {
  const width = widthOf(s.call.shape);
  return Array.from({ length: width }, (_, i) => {
    const at = row * width + i;
    return input('target')(at) / (1 + Math.exp(-input('input')(at)));
  });
});
