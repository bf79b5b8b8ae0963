/** The float64 reference of rebuild, and the comparison of its outputs with it. */
import { cacheRow } from '../host/cache-layout.js';
import { rotaryFrequencies } from '../host/rotary.js';
import { dim, dimsOf, type Checker } from '../reference.js';
import { cachedRows, runOf } from '../shared/attention/attention.reference.js';
import { headOf, pinnedPosition, rebuildInto, rebuilding, rotate } from '../shared/attention/rebuild.reference.js';
import { GROUP_SIZE } from '../spec.js';

/**
 * One rebuilt row a token of the call's context, W c + mu, rotated by the token's position or as it is; sequences that
 * hold fewer repeat theirs.
 */
export const reference: Checker = {
  outputs: ['rows'],
  rows: (shape) => dim(shape, 'sequences') * dim(shape, 'kvHeads') * dim(shape, 'context'),
  row: (s, index) => {
    const { context, headDim, kvHeads, latentHeads, rank } = dimsOf<'rebuild'>(s);
    // KV head, counted over all sequences.
    const row = Math.floor(index / context);
    const run = runOf(s);
    const tokens = run.tokens(Math.floor(row / kvHeads));
    const token = tokens[(index % context) % Math.max(1, tokens.length)];
    if (!token) return { expected: [], actual: () => 0 };
    const { slot } = token;
    const of = rebuilding(s);
    const { w, mu } = headOf(of, row % kvHeads, headDim, rank);
    const keys = cachedRows(s, 'keys', rank, run);
    const latentRow = latentHeads === 1 ? Math.floor(row / kvHeads) : row;
    const latent = Float64Array.from({ length: rank }, (_, r) => keys(latentRow, slot, r));
    const x = new Float64Array(headDim);
    rebuildInto(x, w, mu, latent);
    if (s.call.variant.endsWith('+rope')) {
      const position = token.pinned ? pinnedPosition(s, run)(row, slot) : token.position;
      rotate(x, rotaryFrequencies(of.ropeBase, headDim), of.pairing, position);
    }
    const stored = cacheRow(s.outputWords('rows'), 'f16', headDim, GROUP_SIZE, run.capacity);
    return { expected: [...x], actual: (i) => stored(row, slot, i) };
  },
};
