/** Causal attention of a prompt's chunk in float64, as the definition has it. The specification of attend_prefill. */
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

/** Output of one query head and token of a chunk: the tokens before it, and itself, are all that it sees. */
export function attendChunkRow(shape: Shape, operands: ChunkOperands, span: ChunkSpan, at: { sequence: number; token: number; head: number }): number[] {
  const { kvHeads, group, queries, keyWidth, valueWidth } = shape as Readonly<Record<'kvHeads' | 'group' | 'queries' | 'keyWidth' | 'valueWidth', number>>;
  const { branch } = operands;
  const content = keyWidth - (branch?.width ?? 0);
  const kvHead = Math.floor(at.head / group);
  const row = at.sequence * kvHeads + kvHead;
  const token = at.sequence * queries + at.token;
  const q = Float64Array.from({ length: content }, (_, i) => operands.queries(token, at.head, i));
  const scores = Float64Array.from({ length: span.before + at.token + 1 }, (_, t) => {
    let dot = 0;
    for (let i = 0; i < content; i++) dot += (q[i] as number) * operands.keys(row, t, i);
    if (branch) for (let i = 0; i < branch.width; i++) dot += branch.queries(token, at.head, i) * branch.keys(at.sequence, t, kvHead, i);
    return dot * keyWidth ** -0.5;
  });
  return weightedSum(scores, valueWidth, (t, i) => operands.values(row, t, i));
}
