/** The float64 reference of evict_chunk, and the comparison of its outputs with it. */
import { dim, type Checker } from '../reference.js';
import { filledSlots, staysBehind } from '../shared/cache/evict.reference.js';

/** As evict_prefill; pinned tokens that stay keep their rows and positions. */
export const reference: Checker = {
  outputs: ['mass', 'positions', 'keys', 'values'],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => {
    if (s.options.evictChunk) throw new Error('evict_chunk is verified with its own options only');
    const held = dim(s.call.shape, 'held');
    return filledSlots(s, row, (mass, pinned, ring) => staysBehind(mass, { held, position: held }, pinned, ring));
  },
};
