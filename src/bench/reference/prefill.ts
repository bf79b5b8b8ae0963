/**
 * Attention of a prompt's chunk in float64, as the definition has it. The specification of attend_prefill and
 * attend_carried.
 */
import type { Shape } from '../../kernels/spec.js';
import type { ChunkSpan } from '../../kernels/shared/prefill.launch.js';
import { weightedSum, type CachedRows } from './attention.js';

/** Vectors of a chunk's token: component `i` of a query head. */
export type TokenVectors = (token: number, head: number, i: number) => number;

/** What scores are made of. Rows are of sequences, then KV heads; tokens of queries run through all sequences. */
export interface ScoreOperands {
  readonly queries: TokenVectors;
  readonly keys: CachedRows;
  /** A rotary branch: its width, queries, and the key of a sequence's token and KV head. */
  readonly branch?: {
    readonly width: number;
    readonly queries: TokenVectors;
    readonly keys: (sequence: number, token: number, kvHead: number, i: number) => number;
  };
}

/** What one call attends with. */
export interface ChunkOperands extends ScoreOperands {
  readonly values: CachedRows;
}

/**
 * What a query has attended to before: its output, the largest score (natural logarithm) and the sum of e^(score -
 * largest).
 */
export interface Carried {
  readonly output: readonly number[];
  readonly top: number;
  readonly mass: number;
}

interface QueryPlace {
  readonly sequence: number;
  readonly token: number;
  readonly head: number;
}

/** Score of one query head and token against a row (natural logarithm). */
function scoreOf(shape: Shape, operands: ScoreOperands, at: QueryPlace): (t: number) => number {
  const { group, queries, keyWidth } = shape as Readonly<Record<'group' | 'queries' | 'keyWidth', number>>;
  const { branch } = operands;
  const content = keyWidth - (branch?.width ?? 0);
  const kvHead = Math.floor(at.head / group);
  const row = rowOf(shape, at);
  const token = at.sequence * queries + at.token;
  const q = Float64Array.from({ length: content }, (_, i) => operands.queries(token, at.head, i));
  return (t) => {
    let dot = 0;
    for (let i = 0; i < content; i++) dot += (q[i] as number) * operands.keys(row, t, i);
    if (branch)
      for (let i = 0; i < branch.width; i++)
        dot += branch.queries(token, at.head, i) * branch.keys(at.sequence, t, kvHead, i);
    return dot * keyWidth ** -0.5;
  };
}

/** The rows that a query head attends to. */
const rowOf = ({ kvHeads, group }: Shape, { sequence, head }: QueryPlace): number =>
  sequence * (kvHeads as number) + Math.floor(head / (group as number));

/** Scores of one query head and token over the first `count` rows (natural logarithm), and those rows' values. */
function scoresOf(
  shape: Shape,
  operands: ChunkOperands,
  count: number,
  at: QueryPlace,
): { scores: Float64Array; value: (t: number, i: number) => number } {
  const score = scoreOf(shape, operands, at);
  return {
    scores: Float64Array.from({ length: count }, (_, t) => score(t)),
    value: (t, i) => operands.values(rowOf(shape, at), t, i),
  };
}

/**
 * What the queries of a chunk give a token, pooled over the query heads of a row that evicts on its own: the weight of
 * each that comes after the token. The specification of mass_prefill.
 * @param statistics largest score (natural logarithm) and mass of a query
 */
export function givenMass(
  shape: Shape,
  operands: ScoreOperands,
  { sequence, row, token }: { sequence: number; row: number; token: number },
  statistics: (at: QueryPlace) => { top: number; mass: number },
): number {
  const { kvHeads, rows, group, queries, context } = shape as Readonly<
    Record<'kvHeads' | 'rows' | 'group' | 'queries' | 'context', number>
  >;
  const pooled = (kvHeads / rows) * group;
  let sum = 0;
  for (let i = Math.max(0, token + 1 - context); i < queries; i++) {
    for (let head = row * pooled; head < (row + 1) * pooled; head++) {
      const at = { sequence, token: i, head };
      const { top, mass } = statistics(at);
      sum += Math.exp(scoreOf(shape, operands, at)(token) - top) / mass;
    }
  }
  return sum;
}

/** Output of one query head and token of a chunk: the tokens before it, and itself, are all that it sees. */
export function attendChunkRow(shape: Shape, operands: ChunkOperands, span: ChunkSpan, at: QueryPlace): number[] {
  const { scores, value } = scoresOf(shape, operands, span.before + at.token + 1, at);
  return weightedSum(scores, shape.valueWidth as number, value);
}

/**
 * The same with what is carried to the next call.
 * @param own rows of the chunk itself are among those attended to
 * @param carried of the calls before
 */
export function attendCarriedRow(
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
