import { field, type KernelSpec } from '../spec.js';
import { unlisted } from '../tuned.js';

/**
 * H2O: turns the scores of this step into softmax weights and adds them to the mass of each cached token. `rows`:
 * sequences × rows that evict on their own; `group`: query heads pooled into one of them.
 */
export const spec: KernelSpec<'rows' | 'group' | 'context'> = {
  dims: ['rows', 'group', 'context'],
  variants: ['f32'],
  work: (s) => {
    const [n, group, context] = [field(s, 'rows'), field(s, 'group'), field(s, 'context')];
    return {
      readBytes: n * (group * (context + 2) + context) * 4,
      writeBytes: n * context * 4,
      flops: n * group * context * 4,
      matrixFlops: 0,
    };
  },
  terms: (s) => {
    const w = spec.work(s, 'f32');
    return [1, w.readBytes + w.writeBytes, w.flops];
  },
  tuned: (s) => {
    const { readBytes, writeBytes } = spec.work(s, 'f32');
    return unlisted('small', readBytes + writeBytes);
  },
};
