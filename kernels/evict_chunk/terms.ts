import { CHOOSING_PASSES } from '../evict_prefill/terms.js';
import { evicting } from '../shared/cache/evict.terms.js';
import { field, storedIn, type KernelSpec } from '../spec.js';

/**
 * The same after a chunk that follows `held` cached tokens; tokens are chosen from both (`context`). Tokens that keep
 * their slot are not copied; at most those of the chunk, and as many that leave the ring, are.
 */
export const spec: KernelSpec<'rows' | 'held' | 'context' | 'kept' | 'width' | 'groupSize'> = {
  sources: ['evict_chunk', 'evict_gather'],
  dims: ['rows', 'held', 'context', 'kept', 'width', 'groupSize'],
  ...evicting((s, v) => {
    const [n, context, kept] = [field(s, 'rows'), field(s, 'context'), field(s, 'kept')];
    const copied = Math.min(kept, 2 * (context - field(s, 'held'))) * storedIn(s, v, field(s, 'width'));
    return {
      readBytes: n * (context * 4 + copied + kept * 4),
      writeBytes: n * (copied + kept * 12),
      flops: n * CHOOSING_PASSES * context,
      matrixFlops: 0,
    };
  }),
};
