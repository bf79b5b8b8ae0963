/** The float64 reference of embed, and the comparison of its outputs with it. */
import { DEFAULTS } from '../launch.js';
import type { Checker } from '../reference.js';
import { rowsIn, widthOf } from '../shared/dense/rows.reference.js';
import { evenRow } from '../spec.js';

export const reference: Checker = rowsIn('output', {}, (s, input, row) => {
  const width = widthOf(s.call.shape);
  const stride = evenRow(s.options.vocabulary ?? DEFAULTS.vocabulary);
  const token = input('tokens')(row);
  return Array.from({ length: width }, (_, i) =>
    input('embedding')(s.options.embeddingColumns ? i * stride + token : token * width + i),
  );
});
