/** The float64 reference of rmsnorm, and the comparison of its outputs with it. */
import { DEFAULTS } from '../launch.js';
import type { Checker } from '../reference.js';
import { rowsIn, widthOf } from '../shared/dense/rows.reference.js';

export const reference: Checker = rowsIn('target', { input: widthOf }, (s, input, row) => {
  const { variant } = s.call;
  const width = widthOf(s.call.shape);
  const x = (i: number): number => input('input')(row * width + i);
  let squares = 0;
  for (let i = 0; i < width; i++) squares += x(i) ** 2;
  const factor = 1 / Math.sqrt(squares / width + (s.options.eps ?? DEFAULTS.eps));
  return Array.from({ length: width }, (_, i) => {
    const normed = variant === 'add' ? x(i) : x(i) * factor * input('weight')(i);
    return variant === 'norm' ? normed : input('target')(row * width + i) + normed;
  });
});
