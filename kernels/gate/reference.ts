/** The float64 reference of gate, and the comparison of its outputs with it. */
import type { Checker } from '../reference.js';
import { ALONE } from '../shared/attention/current.launch.js';
import { rowsIn, widthOf } from '../shared/dense/rows.reference.js';

const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));

const softplus = (x: number): number => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));

export const reference: Checker = rowsIn('target', { input: widthOf }, (s, input, row) => {
  const width = widthOf(s.call.shape);
  if (s.call.variant === 'change') {
    // All rows begin where the target's do.
    const first = (s.options.placement?.output?.offset ?? 0) + row * width;
    const of = (name: string, i: number): number => s.input(name)(first + i);
    const rates = s.input('rates');
    return Array.from({ length: width }, (_, i) => {
      const kept = Math.exp(-softplus(of('gates', i) + rates(i)) * Math.exp(rates(width + i)));
      return of('before', i) + kept * of('target', i);
    });
  }
  const target = (i: number): number => input('target')(row * width + i);
  if (s.call.variant !== 'mix')
    return Array.from({ length: width }, (_, i) => target(i) * sigmoid(input('input')(row * width + i)));
  const { heads } = s.options.current ?? ALONE;
  const g = sigmoid(input('gates')(row) + input('bias')(row % heads));
  return Array.from({ length: width }, (_, i) => g * target(i) + (1 - g) * input('other')(row * width + i));
});
