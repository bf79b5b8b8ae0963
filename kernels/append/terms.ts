import { field, STORAGES, storageOfVariant, storedBytes, launchAnd, type KernelSpec } from '../spec.js';

/**
 * Writes one token's K, V or latent rows to the cache in its storage type: `heads` rows of `width` scalars for each
 * of `rows` tokens.
 */
export const spec: KernelSpec<'rows' | 'heads' | 'width' | 'groupSize'> = {
  dims: ['rows', 'heads', 'width', 'groupSize'],
  variants: STORAGES,
  work: (s, v) => {
    const written = field(s, 'rows') * field(s, 'heads');
    const n = written * field(s, 'width');
    return {
      readBytes: 4 * n,
      writeBytes: written * storedBytes(storageOfVariant(v), field(s, 'width'), field(s, 'groupSize')),
      flops: n,
      matrixFlops: 0,
    };
  },
  terms: (s, v) => launchAnd(spec.work(s, v), 'readBytes', 'writeBytes'),
  // The kernel before or after writes the rows.
  tuned: () => null,
};
