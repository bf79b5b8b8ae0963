/** The float64 reference of attend, and the comparison of its outputs with it. */
import { dimsOf, type Checker } from '../reference.js';
import { attendedRow, cachedRows, queryHeads, runOf, withScores } from '../shared/attention/attention.reference.js';

/** Rows of query heads, counted over all sequences. */
export const reference: Checker = {
  outputs: ['partials', 'scores'],
  rows: queryHeads,
  row: (s, head) => {
    const { kvHeads, group, keyWidth, valueWidth, branchWidth, branchHeads } = dimsOf<'attend'>(s);
    const run = runOf(s);
    const keys = cachedRows(s, 'keys', keyWidth, run);
    const values = cachedRows(s, 'values', valueWidth, run);
    const branch = branchWidth > 0 ? cachedRows(s, 'branch', branchWidth, run) : () => 0;
    const row = Math.floor(head / group);
    const sequence = Math.floor(row / kvHeads);
    const branchRow = branchHeads === 1 ? sequence : Math.floor((head * branchHeads) / (kvHeads * group));
    const width = keyWidth + branchWidth;
    const scale = s.options.scale ?? width ** -0.5;
    const query = s.input('queries');
    const q = (set: number): Float64Array =>
      Float64Array.from({ length: width }, (_, i) => query((set + head) * width + i));
    const [ringQuery, pinnedQuery] = [q(0), q(run.querySet)];
    const tokens = run.tokens(sequence);
    const scores = Float64Array.from(tokens, (t) => {
      const own = t.pinned ? pinnedQuery : ringQuery;
      let dot = 0;
      for (let i = 0; i < keyWidth; i++) dot += (own[i] as number) * keys(row, t.slot, i);
      for (let i = 0; i < branchWidth; i++) dot += (own[keyWidth + i] as number) * branch(branchRow, t.slot, i);
      return scale * dot;
    });
    return withScores(
      s,
      head,
      run,
      attendedRow(tokens, scores, valueWidth, (slot, i) => values(row, slot, i)),
    );
  },
};
