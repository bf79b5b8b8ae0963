import { field, UNPACK_FLOPS, launchAnd, type KernelSpec } from '../spec.js';
import { unlisted } from '../tuned.js';

/** Passes over the rows: one for the pairs, one for the codes. */
const PASSES = 2;

/**
 * Packing of a loop's rows of so many tokens (`rows`), of whole groups of them; a step packs one in the mean. `loops`:
 * streams before and its own.
 */
export const spec: KernelSpec<'rows' | 'heads' | 'headDim' | 'loops' | 'anchorBits' | 'packGroup'> = {
  dims: ['rows', 'heads', 'headDim', 'loops', 'anchorBits', 'packGroup'],
  variants: ['keys', 'values'],
  work: (s) => {
    const scalars = field(s, 'rows') * field(s, 'heads') * field(s, 'headDim');
    const [loops, anchor] = [field(s, 'loops'), field(s, 'anchorBits') / 8];
    const pair = 4 / field(s, 'packGroup');
    const before = loops > 1 ? anchor + pair + (loops - 2) * (0.5 + pair) : 0;
    return {
      readBytes: PASSES * scalars * (2 + before),
      writeBytes: scalars * ((loops > 1 ? 0.5 : anchor) + pair),
      flops: PASSES * scalars * (4 + (loops - 1) * UNPACK_FLOPS),
      matrixFlops: 0,
    };
  },
  terms: (s, v) => launchAnd(spec.work(s, v), 'readBytes', 'writeBytes', 'flops'),
  tuned: (s, v) => {
    const { readBytes, writeBytes } = spec.work(s, v);
    return unlisted('small', readBytes / PASSES + writeBytes);
  },
};
