/** The float64 reference of attend_carried, and the comparison of its outputs with it. */
import { dim, type Checker } from '../reference.js';
import { weightedSum } from '../shared/attention/attention.reference.js';
import { chunkRow, queryRows, scoresOf } from '../shared/attention/prefill.reference.js';
import { attendsToItself } from './launch.js';

/**
 * Output, then the largest score as a weight relative to the expected one, and the mass over the expected one: so
 * neither outweighs the output. Where earlier calls are carried, their output, largest score and mass (the sum of
 * e^(score - largest)) are taken in.
 */
export const reference: Checker = {
  outputs: ['output', 'statistics'],
  rows: queryRows,
  row: (s, row) => {
    const own = attendsToItself(s.call);
    const { at, span, output, operands } = chunkRow(s, row, own);
    if (at.token >= span.tokens) return { expected: [], actual: () => NaN };
    const width = dim(s.call.shape, 'valueWidth');
    const statistics = s.input('statistics');
    const carried = s.options.prefill?.carried ?? !own;
    const { scores, value } = scoresOf(s.call.shape, operands, span.before + (own ? at.token + 1 : 0), at);
    const topBefore = carried ? statistics(2 * row) * Math.LN2 : -Infinity;
    const top = scores.reduce((a, b) => Math.max(a, b), topBefore);
    const before = carried ? statistics(2 * row + 1) * Math.exp(topBefore - top) : 0;
    const added = scores.reduce((sum, score) => sum + Math.exp(score - top), 0);
    const mass = before + added;
    const after = weightedSum(scores, width, value).map(
      (o, i) => (o * added + before * (carried ? s.input('output')(output + i) : 0)) / mass,
    );
    return {
      expected: [...after, 1, 1],
      actual: (i) =>
        i < width
          ? s.output('output')(output + i)
          : i === width
            ? 2 ** (s.output('statistics')(2 * row) - top * Math.LOG2E)
            : s.output('statistics')(2 * row + 1) / mass,
    };
  },
};
