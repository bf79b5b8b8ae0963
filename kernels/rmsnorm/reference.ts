/** The float64 reference of rmsnorm, and the comparison of its outputs with it. */
import { DEFAULTS } from '../launch.js';
import { dim, type Checker } from '../reference.js';
import { rowsIn, widthOf, type Input } from '../shared/dense/rows.reference.js';
import type { Shape } from '../spec.js';

export const reference: Checker = rowsIn('target', { input: widthOf }, (s, input, row) =>
  rmsnormRow(s.call.shape, s.call.variant, s.options.eps ?? DEFAULTS.eps, input, row),
);

/** `norm`, `norm-add` or `add`; `before` holds the target's contents before the run. */
export function rmsnormRow(shape: Shape, variant: string, eps: number, input: Input, row: number): number[] {
  const width = dim(shape, 'width');
  const x = (i: number): number => input('input')(row * width + i);
  let squares = 0;
  for (let i = 0; i < width; i++) squares += x(i) ** 2;
  const factor = 1 / Math.sqrt(squares / width + eps);
  return Array.from({ length: width }, (_, i) => {
    const normed = variant === 'add' ? x(i) : x(i) * factor * input('weight')(i);
    return variant === 'norm' ? normed : input('target')(row * width + i) + normed;
  });
}
