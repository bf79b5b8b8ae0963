import { elementTerms } from '../shared/attention/attention.terms.js';
import { field, type KernelSpec } from '../spec.js';

/**
 * Joins two softmax parts of the same query, one of exact rows and one of latents, and adds the mean of the latter's
 * values. `rows`: sequences × query heads; `width`: of the value rows.
 */
export const spec: KernelSpec<'rows' | 'width'> = {
  dims: ['rows', 'width'],
  variants: ['f32'],
  work: (s) => {
    const [n, width] = [field(s, 'rows'), field(s, 'width')];
    return {
      readBytes: n * (3 * width + 4) * 4,
      writeBytes: n * (width + 2) * 4,
      flops: n * (5 * width + 8),
      matrixFlops: 0,
    };
  },
  terms: (s, v) => [...elementTerms(spec.work(s, v)), field(s, 'rows')],
  // Tuned attention keeps one sum over all tokens.
  tuned: () => null,
};
