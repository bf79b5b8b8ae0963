import { field, storageOfVariant, storedBytes, launchAnd, type KernelSpec } from '../spec.js';
import { tunedPrefill } from '../tuned.js';

/**
 * Causal attention of a run of prompt tokens over K and V rows of the type named: `queries` new tokens a sequence, each
 * over the `context` tokens before the run and those of the run up to itself.
 */
export const spec: KernelSpec<'sequences' | 'kvHeads' | 'group' | 'queries' | 'context' | 'keyWidth' | 'valueWidth'> = {
  dims: ['sequences', 'kvHeads', 'group', 'queries', 'context', 'keyWidth', 'valueWidth'],
  variants: ['f16', 'f32'],
  work: (s, v) => {
    const [tokens, context] = [field(s, 'queries'), field(s, 'context')];
    const [key, value] = [field(s, 'keyWidth'), field(s, 'valueWidth')];
    const heads = field(s, 'sequences') * field(s, 'kvHeads');
    const scores = tokens * context + (tokens * (tokens + 1)) / 2;
    const product = heads * field(s, 'group') * scores * 2 * (key + value);
    return {
      readBytes:
        heads *
        ((context + tokens) * (key + value) * storedBytes(storageOfVariant(v), 1) +
          field(s, 'group') * tokens * key * 4),
      writeBytes: heads * field(s, 'group') * tokens * value * 4,
      flops: product,
      matrixFlops: product,
    };
  },
  terms: (s, v) => launchAnd(spec.work(s, v), 'readBytes', 'flops', 'writeBytes'),
  tuned: (s, v) => tunedPrefill(s, spec.work(s, v).matrixFlops, true, v === 'f8'),
};
