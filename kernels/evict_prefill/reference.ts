/** The float64 reference of evict_prefill, and the comparison of its outputs with it. */
import { dim, type Checker } from '../reference.js';
import { filledSlots, staysOf } from '../shared/cache/evict.reference.js';

export const reference: Checker = {
  outputs: ['mass', 'positions', 'keys', 'values'],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => {
    if (s.options.evictPrefill) throw new Error('evict_prefill is verified with its own options only');
    return filledSlots(s, row, (mass, pinned, ring) => staysOf(mass, pinned, ring));
  },
};
