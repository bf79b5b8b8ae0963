/** The float64 reference of attend_residual, and the comparison of its outputs with it. */
import { loopsRow } from '../../src/gpu/residual-layout.js';
import { dimsOf, type Checker, type Subject } from '../reference.js';
import { merged, queryHeads, runOf, weightedSum, type CachedRows } from '../shared/attention/attention.reference.js';
import { residualRowOf } from './launch.js';

/** Rows of one loop. */
function loopRows(s: Subject, name: string, loop: number, capacity: number): CachedRows {
  const row = residualRowOf(s.call);
  const read = loopsRow(s.inputWords(name), row, capacity);
  return (of, slot, i) => read(of, slot, loop * row.headDim + i);
}

const rowsRead = new WeakMap<Subject, Record<'keys' | 'values', CachedRows>>();

export const reference: Checker = {
  outputs: ['partials'],
  rows: queryHeads,
  row: (s, head) => {
    const { headDim: d, loops, group, kvHeads } = dimsOf<'attend_residual'>(s);
    const run = runOf(s);
    const loop = s.call.variant === 'anchor' ? loops - 1 : (s.options.residual?.loop ?? 0);
    const caches = rowsRead.get(s) ?? {
      keys: loopRows(s, 'keys', loop, run.capacity),
      values: loopRows(s, 'values', loop, run.capacity),
    };
    rowsRead.set(s, caches);
    const row = Math.floor(head / group);
    const tokens = run.tokens(Math.floor(row / kvHeads));
    const query = s.input('queries');
    const scores = Float64Array.from(tokens, ({ slot }) => {
      let dot = 0;
      for (let i = 0; i < d; i++) dot += query(head * d + i) * caches.keys(row, slot, i);
      return d ** -0.5 * dot;
    });
    const output = weightedSum(scores, d, (token, i) => caches.values(row, tokens[token]?.slot as number, i));
    return { expected: output, actual: merged(s, head, d) };
  },
};
