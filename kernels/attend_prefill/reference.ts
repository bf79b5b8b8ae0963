/** The float64 reference of attend_prefill, and the comparison of its outputs with it. */
import type { ChunkSpan } from '../attention-options.js';
import type { Checker } from '../reference.js';
import { weightedSum } from '../shared/attention/attention.reference.js';
import {
  chunkRow,
  queryRows,
  scoresOf,
  type ChunkOperands,
  type QueryPlace,
} from '../shared/attention/prefill.reference.js';
import type { Shape } from '../spec.js';

/** Without rows beyond the tokens of a shorter sequence, which nothing writes. */
export const reference: Checker = {
  outputs: ['output'],
  rows: queryRows,
  row: (s, row) => {
    const { at, span, output, operands } = chunkRow(s, row, true);
    return {
      expected: at.token < span.tokens ? attendChunkRow(s.call.shape, operands, span, at) : [],
      actual: (i) => s.output('output')(output + i),
    };
  },
};

/** Output of one query head and token of a chunk: it attends to the tokens before it and to itself. */
function attendChunkRow(shape: Shape, operands: ChunkOperands, span: ChunkSpan, at: QueryPlace): number[] {
  const { scores, value } = scoresOf(shape, operands, span.before + at.token + 1, at);
  return weightedSum(scores, shape.valueWidth as number, value);
}
