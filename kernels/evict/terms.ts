import { evicting } from '../shared/cache/evict.terms.js';
import { field, storedIn, type KernelSpec } from '../spec.js';

/**
 * H2O: the token that leaves the ring of recent ones replaces the lightest pinned one where it is heavier: its row,
 * mass and position are copied. `rows`: sequences × rows that evict on their own; `context`: pinned tokens of a row;
 * `width`: scalars of all rows of a token that are evicted together (key, value and, where there is one, rotary
 * branch).
 */
export const spec: KernelSpec<'rows' | 'context' | 'width' | 'groupSize'> = {
  sources: ['evict', 'evict_copy'],
  dims: ['rows', 'context', 'width', 'groupSize'],
  ...evicting((s, v) => {
    const [n, context] = [field(s, 'rows'), field(s, 'context')];
    const copied = storedIn(s, v, field(s, 'width')) + 8;
    return { readBytes: n * (context * 4 + copied), writeBytes: n * copied, flops: n * context, matrixFlops: 0 };
  }),
};
