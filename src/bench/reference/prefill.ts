/** Attention of a prompt's chunk in float64, as the definition has it. The specification of attend_prefill and attend_carried. */
import type { Shape } from '../../schedule/kernels.js';
import type { ChunkSpan } from '../../gpu/operations/prefill.js';
import { weightedSum, type CachedRows } from './attention.js';

/** Vectors of a chunk's token: component `i` of a query head. */
export type TokenVectors = (token: number, head: number, i: number) => number;

/** What one call attends with. Rows are of sequences, then KV heads; tokens of queries run through all sequences. */
export interface ChunkOperands {
  readonly queries: TokenVectors;
  readonly keys: CachedRows;
  readonly values: CachedRows;
  /** A rotary branch: its width, queries, and the key of a sequence's token and KV head. */
  readonly branch?: { readonly width: number; readonly queries: TokenVectors; readonly keys: (sequence: number, token: number, kvHead: number, i: number) => number };
}

/** What a query has attended to before: its output, the largest score (natural logarithm) and the sum of e^(score - largest). */
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

/** Scores of one query head and token over the first `count` rows (natural logarithm), and those rows' values. */
function scoresOf(shape: Shape, operands: ChunkOperands, count: number, at: QueryPlace): { scores: Float64Array; value: (t: number, i: number) => number } {
  const { kvHeads, group, queries, keyWidth } = shape as Readonly<Record<'kvHeads' | 'group' | 'queries' | 'keyWidth', number>>;
  const { branch } = operands;
  const content = keyWidth - (branch?.width ?? 0);
  const kvHead = Math.floor(at.head / group);
  const row = at.sequence * kvHeads + kvHead;
  const token = at.sequence * queries + at.token;
  const q = Float64Array.from({ length: content }, (_, i) => operands.queries(token, at.head, i));
  const scores = Float64Array.from({ length: count }, (_, t) => {
    let dot = 0;
    for (let i = 0; i < content; i++) dot += (q[i] as number) * operands.keys(row, t, i);
    if (branch) for (let i = 0; i < branch.width; i++) dot += branch.queries(token, at.head, i) * branch.keys(at.sequence, t, kvHead, i);
    return dot * keyWidth ** -0.5;
  });
  return { scores, value: (t, i) => operands.values(row, t, i) };
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
export function attendCarriedRow(shape: Shape, operands: ChunkOperands, span: ChunkSpan, at: QueryPlace, own: boolean, carried?: Carried): Carried {
  const { scores, value } = scoresOf(shape, operands, span.before + (own ? at.token + 1 : 0), at);
  const top = scores.reduce((a, b) => Math.max(a, b), carried?.top ?? -Infinity);
  const before = carried ? carried.mass * Math.exp(carried.top - top) : 0;
  const added = scores.reduce((sum, s) => sum + Math.exp(s - top), 0);
  const mass = before + added;
  const output = weightedSum(scores, shape.valueWidth as number, value).map((o, i) => (o * added + before * (carried?.output[i] ?? 0)) / mass);
  return { output, top, mass };
}
