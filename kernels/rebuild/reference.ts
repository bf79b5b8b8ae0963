/** The float64 reference of rebuild, and the comparison of its outputs with it. */
import { cacheRow } from '../host/cache-layout.js';
import { rotaryFrequencies } from '../host/rotary.js';
import { dim, type Checker } from '../reference.js';
import { cachedRows, runOf, type CachedRows, type Dims } from '../shared/attention/attention.reference.js';
import {
  headOf,
  pinnedPosition,
  rebuildInto,
  rebuilding,
  rotate,
  type Rebuilding,
} from '../shared/attention/rebuild.reference.js';
import { GROUP_SIZE, type Shape } from '../spec.js';

/** One rebuilt row a token of the call's context; sequences that hold fewer repeat theirs. */
export const reference: Checker = {
  outputs: ['rows'],
  rows: (shape) => dim(shape, 'sequences') * dim(shape, 'kvHeads') * dim(shape, 'context'),
  row: (s, index) => {
    const { shape, variant } = s.call;
    const [context, headDim, kvHeads] = [dim(shape, 'context'), dim(shape, 'headDim'), dim(shape, 'kvHeads')];
    const row = Math.floor(index / context);
    const run = runOf(s);
    const tokens = run.tokens(Math.floor(row / kvHeads));
    const token = tokens[(index % context) % Math.max(1, tokens.length)];
    if (!token) return { expected: [], actual: () => 0 };
    const stored = cacheRow(s.outputWords('rows'), 'f16', headDim, GROUP_SIZE, run.capacity);
    const position = token.pinned ? pinnedPosition(s, run)(row, token.slot) : token.position;
    const expected = rebuiltRow(
      shape,
      rebuilding(s),
      cachedRows(s, 'keys', dim(shape, 'rank'), run),
      row,
      token.slot,
      variant.endsWith('+rope') ? position : null,
    );
    return { expected, actual: (i) => stored(row, token.slot, i) };
  },
};

/**
 * The rebuilt row of the token in a slot: W c + mu, rotated by `position`, or as it is where that is null.
 * @param row KV head, counted over all sequences
 */
function rebuiltRow(
  shape: Shape,
  rebuilding: Rebuilding,
  keys: CachedRows,
  row: number,
  slot: number,
  position: number | null,
): number[] {
  const { kvHeads, latentHeads, rank, headDim } = shape as Dims as Record<
    'kvHeads' | 'latentHeads' | 'rank' | 'headDim',
    number
  >;
  const { w, mu } = headOf(rebuilding, row % kvHeads, headDim, rank);
  const latentRow = latentHeads === 1 ? Math.floor(row / kvHeads) : row;
  const x = new Float64Array(headDim);
  rebuildInto(
    x,
    w,
    mu,
    Float64Array.from({ length: rank }, (_, r) => keys(latentRow, slot, r)),
  );
  if (position !== null) rotate(x, rotaryFrequencies(rebuilding.ropeBase, headDim), rebuilding.pairing, position);
  return [...x];
}
