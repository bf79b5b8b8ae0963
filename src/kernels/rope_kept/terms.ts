import { elementwise } from '../shared/elementwise.terms.js';
import { field, type KernelSpec } from '../spec.js';
import { listed } from '../tuned.js';

/**
 * The same for keys rebuilt from latents of tokens that H2O pinned: every row that evicts on its own has positions of
 * its own.
 */
export const spec: KernelSpec = {
  dims: ['rows', 'heads', 'headDim'],
  variants: ['half-split', 'adjacent'],
  ...elementwise(
    (s) => field(s, 'rows') * field(s, 'heads') * field(s, 'headDim'),
    (s) => field(s, 'rows') * field(s, 'heads') * field(s, 'headDim'),
    3,
  ),
  tuned: (s) => listed('rope', { tokens: field(s, 'rows'), width: field(s, 'heads') * field(s, 'headDim') }),
};
