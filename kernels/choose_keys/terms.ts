import { CHOOSING_PASSES } from '../evict_prefill/terms.js';
import { field, launchAnd, type KernelSpec } from '../spec.js';
import { unlisted } from '../tuned.js';

/**
 * The choice of the `kept` most probable of `context` cached tokens and the current one, of each query head by itself
 * (`rows`: those of all sequences); `width`: of a key.
 */
export const spec: KernelSpec<'rows' | 'context' | 'kept' | 'width'> = {
  sources: ['choose_order', 'choose_keys'],
  dispatches: () => 2,
  dims: ['rows', 'context', 'kept', 'width'],
  variants: ['f32'],
  work: (s) => {
    const [n, context, kept] = [field(s, 'rows'), field(s, 'context') + 1, field(s, 'kept')];
    return {
      readBytes: n * 4 * ((1 + CHOOSING_PASSES) * context + 2 * field(s, 'width')),
      writeBytes: n * 4 * (context + kept + 1),
      flops: n * (CHOOSING_PASSES * context + 2 * field(s, 'width')),
      matrixFlops: 0,
    };
  },
  terms: (s, v) => [...launchAnd(spec.work(s, v), 'readBytes', 'writeBytes'), field(s, 'context')],
  // Scores are read once, and lists written.
  tuned: (s) => unlisted('small', field(s, 'rows') * 4 * (field(s, 'context') + field(s, 'kept'))),
};
