import { attendTerms, partialBytes, queries, threadsOf, type Heads } from '../shared/attention/attention.terms.js';
import { field, UNPACK_FLOPS, type KernelSpec, type Shape } from '../spec.js';
import { unlisted } from '../tuned.js';

/** Threads share rows as they share rows in f16: a unit is 8 channels of either. */
export const ROWS_LIKE = 'f16';
/** Operations on a code beside its unpacking: the lowest value, the sum with the loop before, two roundings. */
const SUM_FLOPS = 6;

/** Query heads that read rows together: those of a KV head, unless each reads tokens of its own. */
export const headsOf = (s: Shape, v: string): Heads =>
  v === 'chosen'
    ? { kvHeads: field(s, 'kvHeads') * field(s, 'group'), group: 1 }
    : { kvHeads: field(s, 'kvHeads'), group: field(s, 'group') };

/** Bytes that each row reads, of keys or values: streams, and exact rows in 16 bits. */
const bytesRead = (s: Shape): number =>
  field(s, 'headDim') * (field(s, 'packedRows') * (0.5 + 4 / field(s, 'packGroup')) + 2 * field(s, 'tail'));

function executed(s: Shape, v: string): { operations: number; begun: number } {
  const d = field(s, 'headDim');
  const { lanes, wide, held, rowsRead, begun } = threadsOf(s, ROWS_LIKE, headsOf(s, v), [d, d]);
  return {
    operations:
      rowsRead * wide * held * (field(s, 'context') * 2 * lanes + field(s, 'packedRows') * (UNPACK_FLOPS + SUM_FLOPS)),
    begun,
  };
}

const DIMS = [
  'sequences',
  'kvHeads',
  'group',
  'context',
  'headDim',
  'loops',
  'anchorBits',
  'packGroup',
  'packedRows',
  'tail',
  'splits',
] as const;

/**
 * Split-KV decode attention of one new token over rows of flashloop. `context`: tokens, of all heads or of each query
 * head's choice (`chosen`); `loops`: streams that are added up; `packedRows`: rows of streams that a head reads,
 * counted in 4 bits; `tail`: exact rows; `packGroup`: scalars of a pair. `+scores` also writes every score.
 */
export const spec: KernelSpec<(typeof DIMS)[number]> = {
  dims: DIMS,
  variants: ['all', 'all+scores', 'chosen'],
  work: (s, v) => {
    const [d, { kvHeads }] = [field(s, 'headDim'), headsOf(s, v)];
    const rows = field(s, 'sequences') * kvHeads;
    const product = queries(s) * field(s, 'context') * 4 * d;
    const scores = v === 'all+scores' ? queries(s) * field(s, 'context') * 4 : 0;
    return {
      readBytes: 2 * rows * bytesRead(s) + queries(s) * d * 4,
      writeBytes: partialBytes(s, d) + scores,
      flops: product + 2 * rows * field(s, 'packedRows') * d * (UNPACK_FLOPS + SUM_FLOPS),
      matrixFlops: product,
    };
  },
  executed: (s, v) => executed(s, v).operations,
  terms: (s, v) => attendTerms(s, spec.work(s, v), executed(s, v)),
  tuned: (s, v) => {
    const { readBytes, matrixFlops } = spec.work(s, v);
    // Rebuilding is priced as that of other quantised rows: behind the reading.
    return unlisted('decode-attention', readBytes, {
      matrix: matrixFlops,
      rows: field(s, 'sequences') * field(s, 'kvHeads'),
    });
  },
};
