/** The float64 reference of attend, and the comparison of its outputs with it. */
import { dim, type Checker, type Scalars } from '../reference.js';
import {
  cachedRows,
  queryHeads,
  runOf,
  weightedSum,
  withScores,
  type CachedRows,
  type Dims,
  type Run,
} from '../shared/attention/attention.reference.js';
import type { Shape } from '../spec.js';

export const reference: Checker = {
  outputs: ['partials', 'scores'],
  rows: queryHeads,
  row: (s, row) => {
    const { shape } = s.call;
    const [key, value, branch] = [dim(shape, 'keyWidth'), dim(shape, 'valueWidth'), dim(shape, 'branchWidth')];
    const run = runOf(s);
    const caches = {
      keys: cachedRows(s, 'keys', key, run),
      values: cachedRows(s, 'values', value, run),
      branch: branch > 0 ? cachedRows(s, 'branch', branch, run) : () => 0,
    };
    return withScores(
      s,
      row,
      run,
      attendRow(shape, s.options.scale ?? (key + branch) ** -0.5, s.input('queries'), caches, run, row),
    );
  },
};

/**
 * Output of one query head (counted over all sequences) of `attend`, and its scaled scores (natural logarithm) by slot.
 */
function attendRow(
  shape: Shape,
  scale: number,
  query: Scalars,
  caches: Record<'keys' | 'values' | 'branch', CachedRows>,
  run: Run,
  head: number,
): { output: number[]; scores: Map<number, number> } {
  const { kvHeads, group, keyWidth, valueWidth, branchWidth, branchHeads } = shape as Dims as Record<
    'kvHeads' | 'group' | 'keyWidth' | 'valueWidth' | 'branchWidth' | 'branchHeads',
    number
  >;
  const row = Math.floor(head / group);
  const sequence = Math.floor(row / kvHeads);
  const branchRow = branchHeads === 1 ? sequence : Math.floor((head * branchHeads) / (kvHeads * group));
  const tokens = run.tokens(sequence);
  const width = keyWidth + branchWidth;
  const q = (set: number): Float64Array =>
    Float64Array.from({ length: width }, (_, i) => query((set + head) * width + i));
  const [ringQuery, pinnedQuery] = [q(0), q(run.querySet)];
  const scores = Float64Array.from(tokens, (t) => {
    const own = t.pinned ? pinnedQuery : ringQuery;
    let dot = 0;
    for (let i = 0; i < keyWidth; i++) dot += (own[i] as number) * caches.keys(row, t.slot, i);
    for (let i = 0; i < branchWidth; i++) dot += (own[keyWidth + i] as number) * caches.branch(branchRow, t.slot, i);
    return scale * dot;
  });
  const output = weightedSum(scores, valueWidth, (t, i) => caches.values(row, (tokens[t] as { slot: number }).slot, i));
  return { output, scores: new Map(tokens.map((t, i) => [t.slot, scores[i] as number])) };
}
