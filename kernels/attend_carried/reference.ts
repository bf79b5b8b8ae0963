/** The float64 reference of attend_carried, and the comparison of its outputs with it. */
import type { ChunkSpan } from '../attention-options.js';
import { dim, type Checker } from '../reference.js';
import { weightedSum } from '../shared/attention/attention.reference.js';
import {
  chunkRow,
  queryRows,
  scoresOf,
  type ChunkOperands,
  type QueryPlace,
} from '../shared/attention/prefill.reference.js';
import type { Shape } from '../spec.js';
import { attendsToItself } from './launch.js';

/**
 * Output, then the largest score as a weight relative to the expected one, and the mass over the expected one: so
 * neither outweighs the output.
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
    const before = !(s.options.prefill?.carried ?? !own)
      ? undefined
      : {
          output: Array.from({ length: width }, (_, i) => s.input('output')(output + i)),
          top: statistics(2 * row) * Math.LN2,
          mass: statistics(2 * row + 1),
        };
    const after = attendCarriedRow(s.call.shape, operands, span, at, own, before);
    return {
      expected: [...after.output, 1, 1],
      actual: (i) =>
        i < width
          ? s.output('output')(output + i)
          : i === width
            ? 2 ** (s.output('statistics')(2 * row) - after.top * Math.LOG2E)
            : s.output('statistics')(2 * row + 1) / after.mass,
    };
  },
};

/**
 * State of a query after earlier calls: its output, the largest score (natural logarithm) and the sum of e^(score -
 * largest).
 */
interface Carried {
  readonly output: readonly number[];
  readonly top: number;
  readonly mass: number;
}

/**
 * The same with the state for the next call.
 * @param own rows of the chunk itself are among those attended to
 * @param carried of the calls before
 */
function attendCarriedRow(
  shape: Shape,
  operands: ChunkOperands,
  span: ChunkSpan,
  at: QueryPlace,
  own: boolean,
  carried?: Carried,
): Carried {
  const { scores, value } = scoresOf(shape, operands, span.before + (own ? at.token + 1 : 0), at);
  const top = scores.reduce((a, b) => Math.max(a, b), carried?.top ?? -Infinity);
  const before = carried ? carried.mass * Math.exp(carried.top - top) : 0;
  const added = scores.reduce((sum, s) => sum + Math.exp(s - top), 0);
  const mass = before + added;
  const output = weightedSum(scores, shape.valueWidth as number, value).map(
    (o, i) => (o * added + before * (carried?.output[i] ?? 0)) / mass,
  );
  return { output, top, mass };
}
