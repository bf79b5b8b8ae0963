import { field, launchAnd, type KernelSpec } from '../spec.js';
import { unlisted } from '../tuned.js';

/**
 * H2O during the prefill of a whole prompt: adds the attention weights of a chunk's queries to the mass of the tokens
 * before them. The scores are computed again, and divided by the statistics of attention. `rows`: rows of a sequence
 * that evict on their own; the variant is the type of the keys.
 */
export const spec: KernelSpec<'sequences' | 'kvHeads' | 'rows' | 'group' | 'queries' | 'context' | 'keyWidth'> = {
  dims: ['sequences', 'kvHeads', 'rows', 'group', 'queries', 'context', 'keyWidth'],
  variants: ['f16', 'f32'],
  work: (s, v) => {
    const [sequences, tokens] = [field(s, 'sequences'), field(s, 'queries')];
    const [context, key] = [field(s, 'context'), field(s, 'keyWidth')];
    const heads = sequences * field(s, 'kvHeads');
    const scores = heads * field(s, 'group') * (tokens * context + (tokens * (tokens - 1)) / 2);
    const masses = sequences * field(s, 'rows') * (context + tokens) * 4;
    return {
      readBytes:
        heads * ((context + tokens) * key * (v === 'f32' ? 4 : 2) + field(s, 'group') * tokens * (key + 2) * 4) +
        masses,
      writeBytes: masses,
      flops: scores * (2 * key + 4),
      matrixFlops: scores * 2 * key,
    };
  },
  terms: (s, v) => launchAnd(spec.work(s, v), 'readBytes', 'flops', 'writeBytes'),
  tuned: (s, v) => {
    const { readBytes, writeBytes, matrixFlops } = spec.work(s, v);
    return unlisted('prefill-attention', readBytes + writeBytes, { matrix: matrixFlops });
  },
};
