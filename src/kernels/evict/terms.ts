import { field, STORAGES, storedIn, type KernelSpec } from '../spec.js';
import { unlisted } from '../tuned.js';

/**
 * H2O: the token that leaves the ring of recent ones replaces the lightest pinned one where it is heavier: its row,
 * mass and position are copied. `rows`: sequences × rows that evict on their own; `context`: pinned tokens of a row;
 * `width`: scalars of all rows of a token that are evicted together (key, value and, where there is one, rotary
 * branch).
 */
export const spec: KernelSpec = {
  sources: ['evict', 'evict_copy'],
  dims: ['rows', 'context', 'width', 'groupSize'],
  variants: STORAGES,
  work: (s, v) => {
    const [n, context] = [field(s, 'rows'), field(s, 'context')];
    const copied = storedIn(s, v, field(s, 'width')) + 8;
    return { readBytes: n * (context * 4 + copied), writeBytes: n * copied, flops: n * context, matrixFlops: 0 };
  },
  terms: (s, v) => {
    const w = spec.work(s, v);
    return [1, w.readBytes, w.writeBytes, field(s, 'context')];
  },
  tuned: (s, v) => {
    const { readBytes, writeBytes } = spec.work(s, v);
    return unlisted('small', readBytes + writeBytes);
  },
};
