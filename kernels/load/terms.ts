import { spec as append } from '../append/terms.js';
import { STORAGES, type KernelSpec } from '../spec.js';
import { unlisted } from '../tuned.js';

/** The inverse of append: `heads` rows of `width` scalars of each of `rows` cached tokens, to f32. */
export const spec: KernelSpec<'rows' | 'heads' | 'width' | 'groupSize'> = {
  dims: ['rows', 'heads', 'width', 'groupSize'],
  variants: STORAGES,
  work: (s, v) => {
    const { readBytes, writeBytes, flops } = append.work(s, v);
    return { readBytes: writeBytes, writeBytes: readBytes, flops, matrixFlops: 0 };
  },
  terms: (s, v) => {
    const w = spec.work(s, v);
    return [1, w.readBytes, w.writeBytes];
  },
  tuned: (s, v) => {
    const { readBytes, writeBytes } = spec.work(s, v);
    return unlisted('small', readBytes + writeBytes / 2);
  },
};
