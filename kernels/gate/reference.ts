/** The float64 reference of gate, and the comparison of its outputs with it. */
import type { Checker } from '../reference.js';
import { ALONE } from '../shared/current.launch.js';
import { rowsIn, widthOf } from '../shared/rows.reference.js';

const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));

export const reference: Checker = rowsIn('target', { input: widthOf }, (s, input, row) => {
  const width = widthOf(s.call.shape);
  const target = (i: number): number => input('target')(row * width + i);
  if (s.call.variant !== 'mix')
    return Array.from({ length: width }, (_, i) => target(i) * sigmoid(input('input')(row * width + i)));
  const { heads } = s.options.current ?? ALONE;
  const g = sigmoid(input('gates')(row) + input('bias')(row % heads));
  return Array.from({ length: width }, (_, i) => g * target(i) + (1 - g) * input('other')(row * width + i));
});
