import { spec as attend } from '../attend/terms.js';
import { spec as attendPrefill } from '../attend_prefill/terms.js';
import { unpacking } from '../shared/attention/attention.terms.js';
import { field, STORAGES, storedIn, launchAnd, type KernelSpec, type Shape } from '../spec.js';
import { tunedPrefill, type TunedCall } from '../tuned.js';

/**
 * The same in several calls, whose output and statistics (largest score and mass of each query) are carried from call
 * to call. `+own` is causal attention to the run itself. In the others every query attends to all `context` rows, of
 * the storage named. The first call, which has nothing to read of those before it, is usually `+own`.
 */
export const spec: KernelSpec<(typeof attendPrefill.dims)[number] | 'groupSize'> = {
  dims: [...attendPrefill.dims, 'groupSize'],
  variants: [...STORAGES, ...attendPrefill.variants.map((v) => `${v}+own`)],
  work: (s, v) => {
    const [tokens, context] = [field(s, 'queries'), field(s, 'context')];
    const [key, value] = [field(s, 'keyWidth'), field(s, 'valueWidth')];
    const own = v.endsWith('+own');
    const rows = field(s, 'sequences') * field(s, 'kvHeads');
    const queries = rows * field(s, 'group') * tokens;
    const scores = tokens * context + (own ? (tokens * (tokens + 1)) / 2 : 0);
    const product = rows * field(s, 'group') * scores * 2 * (key + value);
    const cached = rows * (context + (own ? tokens : 0));
    const carried = queries * (value + 2) * 4;
    return {
      readBytes: cached * (storedIn(s, v, key) + storedIn(s, v, value)) + queries * key * 4 + (own ? 0 : carried),
      writeBytes: carried,
      flops: product + unpacking(cached, v, key + value),
      matrixFlops: product,
    };
  },
  terms: (s, v) => launchAnd(spec.work(s, v), 'readBytes', 'flops', 'writeBytes'),
  tuned: (s, v) =>
    field(s, 'queries') === 1 ? tunedToken(s, v) : tunedPrefill(s, spec.work(s, v).matrixFlops, v.endsWith('+own')),
};

/** A chunk of one token attends as a step does: kernels of decoding fold the token itself in. */
function tunedToken(s: Shape, v: string): TunedCall | null {
  if (field(s, 'context') === 0) return null;
  return attend.tuned({ ...s, branchWidth: 0, branchHeads: 0, splits: 1 }, v.replace('+own', ''));
}
