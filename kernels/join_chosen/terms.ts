import { elementTerms } from '../shared/attention/attention.terms.js';
import { field, type KernelSpec } from '../spec.js';

/**
 * What attention over chosen tokens adds to that of the last dense loop; `begin`: in that loop. `rows`: sequences ×
 * query heads; `width`: of a head.
 */
export const spec: KernelSpec<'rows' | 'width'> = {
  dims: ['rows', 'width'],
  variants: ['begin', 'add'],
  work: (s) => {
    const [n, width] = [field(s, 'rows'), field(s, 'width')];
    return {
      readBytes: n * (5 * width + 6) * 4,
      writeBytes: n * (width + 1) * 4,
      flops: n * (7 * width + 8),
      matrixFlops: 0,
    };
  },
  terms: (s, v) => [...elementTerms(spec.work(s, v)), field(s, 'rows')],
  // Tuned attention does it at its end.
  tuned: () => null,
};
