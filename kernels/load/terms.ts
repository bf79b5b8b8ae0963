import { spec as append } from '../append/terms.js';
import { STORAGES, launchAnd, type KernelSpec } from '../spec.js';
import { unlisted } from '../tuned.js';

/** The inverse of append: `heads` rows of `width` scalars of each of `rows` cached tokens, to f32. */
export const spec: KernelSpec<'rows' | 'heads' | 'width' | 'groupSize'> = {
  dims: ['rows', 'heads', 'width', 'groupSize'],
  variants: STORAGES,
  work: (s, v) => {
    const { readBytes, writeBytes, flops } = append.work(s, v);
    return { readBytes: writeBytes, writeBytes: readBytes, flops, matrixFlops: 0 };
  },
  terms: (s, v) => launchAnd(spec.work(s, v), 'readBytes', 'writeBytes'),
  tuned: (s, v) => {
    const { readBytes, writeBytes } = spec.work(s, v);
    return unlisted('small', readBytes + writeBytes / 2);
  },
};
