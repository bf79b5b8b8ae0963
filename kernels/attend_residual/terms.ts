import { attendTerms, partialBytes, queries, rows, threadsOf } from '../shared/attention/attention.terms.js';
import { anchorGroupOf, RESIDUAL_BITS } from '../shared/cache/residual.layout.js';
import { field, UNPACK_FLOPS, type KernelSpec, type Shape } from '../spec.js';
import { unlisted } from '../tuned.js';

/** Threads share rows as they share rows of 8-bit codes: a unit is 16 components of either. */
export const ROWS_LIKE = 'q8';

/** Operations that rebuild a component of a loop before the anchor's, and of the anchor: two codes, four roundings. */
const REBUILD_FLOPS = { anchor: UNPACK_FLOPS + 4, residual: 2 * UNPACK_FLOPS + 14 };

const flopsOf = (variant: string): number => REBUILD_FLOPS[variant as keyof typeof REBUILD_FLOPS];

/** Bytes of a row that are read for one loop. */
function bytesRead(s: Shape, variant: string): number {
  const d = field(s, 'headDim');
  const anchor = d * field(s, 'anchorBits') + (16 * d) / anchorGroupOf({ headDim: d });
  const residual = variant === 'residual' ? d * RESIDUAL_BITS + (16 * d) / field(s, 'residualGroup') + 16 : 0;
  return (anchor + residual) / 8;
}

function executed(s: Shape, v: string): { operations: number; begun: number } {
  const [d, kvHeads, group] = [field(s, 'headDim'), field(s, 'kvHeads'), field(s, 'group')];
  const { lanes, wide, held, rowsRead, begun } = threadsOf(s, ROWS_LIKE, { kvHeads, group }, [d, d]);
  return { operations: rowsRead * field(s, 'context') * wide * held * (2 * lanes + flopsOf(v)), begun };
}

/**
 * Split-KV decode attention of one new token over rows of residual-quant: those of the anchor's loop, or those of a
 * loop before it, rebuilt from the anchor and its residual. `loops`: that share an anchor, whose rows lie between.
 */
export const spec: KernelSpec<
  'sequences' | 'kvHeads' | 'group' | 'context' | 'headDim' | 'loops' | 'anchorBits' | 'residualGroup' | 'splits'
> = {
  dims: ['sequences', 'kvHeads', 'group', 'context', 'headDim', 'loops', 'anchorBits', 'residualGroup', 'splits'],
  variants: ['anchor', 'residual'],
  work: (s, v) => {
    const d = field(s, 'headDim');
    const product = rows(s) * field(s, 'group') * 4 * d;
    return {
      readBytes: 2 * rows(s) * bytesRead(s, v) + queries(s) * d * 4,
      writeBytes: partialBytes(s, d),
      flops: product + 2 * rows(s) * d * flopsOf(v),
      matrixFlops: product,
    };
  },
  executed: (s, v) => executed(s, v).operations,
  terms: (s, v) => attendTerms(s, spec.work(s, v), executed(s, v)),
  tuned: (s, v) => {
    const { readBytes, matrixFlops } = spec.work(s, v);
    // Queries and results are bf16. Rebuilding is priced as other quantised rows' is: behind the reading.
    const rows = field(s, 'sequences') * field(s, 'kvHeads');
    return unlisted('decode-attention', readBytes, { matrix: matrixFlops, rows });
  },
};
