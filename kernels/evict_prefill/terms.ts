import { evicting } from '../shared/cache/evict.terms.js';
import { field, storedIn, type KernelSpec } from '../spec.js';

/** Passes over a prompt's H2O scores: to find the lowest that is kept, and over the kept ones. */
export const CHOOSING_PASSES = 6;

/**
 * H2O after the prefill of a whole prompt: of its `context` tokens `kept` stay, the last ones and the heaviest of the
 * others, and are copied with their scores and positions. `rows` and `width` are those of `evict`.
 */
export const spec: KernelSpec<'rows' | 'context' | 'kept' | 'width' | 'groupSize'> = {
  sources: ['evict_prefill', 'evict_gather'],
  dims: ['rows', 'context', 'kept', 'width', 'groupSize'],
  ...evicting((s, v) => {
    const [n, context, kept] = [field(s, 'rows'), field(s, 'context'), field(s, 'kept')];
    const copied = kept * (storedIn(s, v, field(s, 'width')) + 4);
    return {
      readBytes: n * (context * 4 + copied),
      writeBytes: n * (copied + kept * 4),
      flops: n * CHOOSING_PASSES * context,
      matrixFlops: 0,
    };
  }),
};
