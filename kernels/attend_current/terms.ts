import { elementTerms } from '../shared/attention/attention.terms.js';
import { field, type KernelSpec } from '../spec.js';

/**
 * Latent paths, after the value up-projection: adds the mean of the values and folds in the exact key and value of the
 * current token, from its query, the merged row and the row's maximum and sum, which it writes again. `absorbed` first
 * subtracts the mean of the keys from the current key: absorbed scores of cached tokens leave out q · μ_k, equal for
 * all of them. `rows`: sequences × query heads; `keyWidth`: content and rotary branch together where the path has one.
 */
export const spec: KernelSpec<'rows' | 'keyWidth' | 'valueWidth'> = {
  dims: ['rows', 'keyWidth', 'valueWidth'],
  variants: ['f32', 'absorbed'],
  work: (s, v) => {
    const [n, key, value] = [field(s, 'rows'), field(s, 'keyWidth'), field(s, 'valueWidth')];
    const keys = v === 'absorbed' ? 3 * key : 2 * key;
    return {
      readBytes: n * (keys + 3 * value + 2) * 4,
      writeBytes: n * (value + 2) * 4,
      flops: n * (keys + 5 * value + 8),
      matrixFlops: 0,
    };
  },
  terms: (s, v) => [...elementTerms(spec.work(s, v)), field(s, 'rows')],
  // Tuned attention takes the current token with the others.
  tuned: () => null,
};
