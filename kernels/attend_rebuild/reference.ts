/** The float64 reference of attend_rebuild, and the comparison of its outputs with it. */
import { rotaryFrequencies } from '../host/rotary.js';
import type { ShapeOf } from '../registry.js';
import { dim, type Checker, type Scalars } from '../reference.js';
import {
  attendedRow,
  cachedRows,
  queryHeads,
  runOf,
  withScores,
  type CachedRows,
  type Run,
} from '../shared/attention/attention.reference.js';
import {
  headOf,
  pinnedPosition,
  rebuildInto,
  rebuilding,
  rotate,
  type Rebuilding,
} from '../shared/attention/rebuild.reference.js';
import type { Shape } from '../spec.js';

export const reference: Checker = {
  outputs: ['partials', 'scores'],
  rows: queryHeads,
  row: (s, row) => {
    const { shape } = s.call;
    const run = runOf(s);
    const caches = {
      keys: cachedRows(s, 'keys', dim(shape, 'rankK'), run),
      values: cachedRows(s, 'values', dim(shape, 'rankV'), run),
    };
    const scale = s.options.scale ?? dim(shape, 'headDim') ** -0.5;
    return withScores(
      s,
      row,
      run,
      attendLatentRow(shape, scale, s.input('queries'), rebuilding(s), caches, run, row, pinnedPosition(s, run)),
    );
  },
};

/**
 * Output of one query head (counted over all sequences) of attention over latents, and its scaled scores (natural
 * logarithm) by slot: k_t = W c_t + mu, rotated by the token's position, against a query that comes rotated; the value
 * latents are summed as they are.
 * @param pinnedPosition position of a pinned slot, for a KV head counted over all sequences
 */
export function attendLatentRow(
  shape: Shape,
  scale: number,
  query: Scalars,
  rebuilding: Rebuilding,
  caches: Record<'keys' | 'values', CachedRows>,
  run: Run,
  head: number,
  pinnedPosition: (kvRow: number, slot: number) => number,
): { output: number[]; scores: Map<number, number> } {
  const { kvHeads, latentHeads, group, rankK, rankV, headDim } = shape as ShapeOf<'attend_rebuild'>;
  const kvRow = Math.floor(head / group);
  const sequence = Math.floor(kvRow / kvHeads);
  const row = latentHeads === 1 ? sequence : kvRow;
  const tokens = run.tokens(sequence);
  const theta = rotaryFrequencies(rebuilding.ropeBase, headDim);
  const { w, mu } = headOf(rebuilding, kvRow % kvHeads, headDim, rankK);
  const q = Float64Array.from({ length: headDim }, (_, i) => query(head * headDim + i));
  const c = new Float64Array(rankK);
  const k = new Float64Array(headDim);
  const scores = Float64Array.from(tokens, (t) => {
    for (let r = 0; r < rankK; r++) c[r] = caches.keys(row, t.slot, r);
    rebuildInto(k, w, mu, c);
    rotate(k, theta, rebuilding.pairing, t.pinned ? pinnedPosition(kvRow, t.slot) : t.position);
    let dot = 0;
    for (let i = 0; i < headDim; i++) dot += (q[i] as number) * (k[i] as number);
    return scale * dot;
  });
  return attendedRow(tokens, scores, rankV, (slot, i) => caches.values(row, slot, i));
}
