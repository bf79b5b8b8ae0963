import { CHOOSING_PASSES } from '../evict_prefill/terms.js';
import { field, STORAGES, storedIn, type KernelSpec } from '../spec.js';

/**
 * The same after a chunk behind `held` cached tokens, which are among the `context` that are chosen from: those that
 * stay where they are are not copied, at most the chunk's and as many that leave the ring are.
 */
export const spec: KernelSpec = {
  sources: ['evict_chunk', 'evict_gather'],
  dims: ['rows', 'held', 'context', 'kept', 'width', 'groupSize'],
  variants: STORAGES,
  work: (s, v) => {
    const [n, context, kept] = [field(s, 'rows'), field(s, 'context'), field(s, 'kept')];
    const copied = Math.min(kept, 2 * (context - field(s, 'held'))) * storedIn(s, v, field(s, 'width'));
    return {
      readBytes: n * (context * 4 + copied + kept * 4),
      writeBytes: n * (copied + kept * 12),
      flops: n * CHOOSING_PASSES * context,
      matrixFlops: 0,
    };
  },
  terms: (s, v) => {
    const w = spec.work(s, v);
    return [1, w.readBytes, w.writeBytes, field(s, 'context')];
  },
};
