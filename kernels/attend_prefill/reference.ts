/** The float64 reference of attend_prefill, and the comparison of its outputs with it. */
import { dim, type Checker } from '../reference.js';
import { weightedSum } from '../shared/attention/attention.reference.js';
import { chunkRow, queryRows, scoresOf } from '../shared/attention/prefill.reference.js';

/**
 * Each query head and token of a chunk attends to the tokens before it and to itself. Without rows beyond the tokens of
 * a shorter sequence, which nothing writes.
 */
export const reference: Checker = {
  outputs: ['output'],
  rows: queryRows,
  row: (s, row) => {
    const { at, span, output, operands } = chunkRow(s, row, true);
    if (at.token >= span.tokens) return { expected: [], actual: () => NaN };
    const { scores, value } = scoresOf(s.call.shape, operands, span.before + at.token + 1, at);
    return {
      expected: weightedSum(scores, dim(s.call.shape, 'valueWidth'), value),
      actual: (i) => s.output('output')(output + i),
    };
  },
};
