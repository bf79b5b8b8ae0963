import { elementwise, headScalars } from '../shared/dense/elementwise.terms.js';
import { field, type KernelSpec } from '../spec.js';
import { listed } from '../tuned.js';

/** Rotary embedding, in place, over all rows and heads (queries and the new keys together). */
export const spec: KernelSpec<'rows' | 'heads' | 'headDim'> = {
  dims: ['rows', 'heads', 'headDim'],
  variants: ['half-split', 'adjacent'],
  ...elementwise(headScalars, headScalars, 3),
  tuned: (s) => listed('rope', { tokens: field(s, 'rows'), width: field(s, 'heads') * field(s, 'headDim') }),
};
