import { field, type KernelSpec } from '../spec.js';
import { moving } from '../tuned.js';

/** Token embedding: rows of the f16 table, gathered to f32. */
export const spec: KernelSpec<'rows' | 'width'> = {
  dims: ['rows', 'width'],
  variants: ['f16'],
  work: (s) => {
    const n = field(s, 'rows') * field(s, 'width');
    return { readBytes: 2 * n, writeBytes: 4 * n, flops: 0, matrixFlops: 0 };
  },
  terms: (s) => [1, field(s, 'rows') * field(s, 'width') * 6],
  tuned: (s) => moving(2 * field(s, 'rows') * field(s, 'width')),
};
