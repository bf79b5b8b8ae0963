/** The float64 reference of embed, and the comparison of its outputs with it. */
import { DEFAULTS } from '../launch.js';
import { dim, type Checker } from '../reference.js';
import { rowsIn, type Input } from '../shared/dense/rows.reference.js';
import { evenRow, type Shape } from '../spec.js';

export const reference: Checker = rowsIn('output', {}, (s, input, row) => {
  if (!s.options.embeddingColumns) return embedRow(s.call.shape, input, row);
  const width = dim(s.call.shape, 'width');
  const stride = evenRow(s.options.vocabulary ?? DEFAULTS.vocabulary);
  return embedRow(
    s.call.shape,
    (name) => (name === 'embedding' ? (i) => s.input(name)((i % width) * stride + Math.floor(i / width)) : input(name)),
    row,
  );
});

export function embedRow(shape: Shape, input: Input, row: number): number[] {
  const width = dim(shape, 'width');
  const token = input('tokens')(row);
  return Array.from({ length: width }, (_, i) => input('embedding')(token * width + i));
}
