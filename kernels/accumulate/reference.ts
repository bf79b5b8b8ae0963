/** The float64 reference of accumulate, and the comparison of its outputs with it. */
import { DEFAULTS } from '../launch.js';
import type { Checker } from '../reference.js';
import { rowsIn, widthOf } from '../shared/dense/rows.reference.js';

export const reference: Checker = rowsIn('target', { input: widthOf }, (s, input, row) => {
  const width = widthOf(s.call.shape);
  const factor = s.options.factor ?? DEFAULTS.factor;
  const before = (i: number): number => (s.call.variant === 'begin' ? 0 : input('target')(i));
  return Array.from({ length: width }, (_, i) => {
    const at = row * width + i;
    return before(at) + factor * input('input')(at);
  });
});
