/** Attention of a chunk of prompt tokens in float64, by its definition. */
import type { ChunkSpan, PrefillOptions } from '../../attention-options.js';
import { capacityOf } from '../../host/cache-layout.js';
import { dim, type Subject } from '../../reference.js';
import type { Shape } from '../../spec.js';
import { cachedRows, type CachedRows } from './attention.reference.js';

export const queryRows = (shape: Shape): number =>
  dim(shape, 'sequences') * dim(shape, 'queries') * dim(shape, 'kvHeads') * dim(shape, 'group');

/** Operands of a call's scores, and its rows of a width. @param reach tokens of a row */
export function operandsOf(
  s: Subject,
  { branch, firstSequence = 0, first = 0, capacity, queries }: PrefillOptions,
  reach: number,
) {
  const { input } = s;
  const { shape } = s.call;
  const kvHeads = dim(shape, 'kvHeads');
  const keyWidth = dim(shape, 'keyWidth') - (branch?.width ?? 0);
  const slots = capacityOf(capacity ?? first + reach);
  const rowsOf = (name: string, width: number) => {
    const cached = cachedRows(s, name, width, { capacity: slots });
    return (r: number, slot: number, i: number): number => cached(firstSequence * kvHeads + r, first + slot, i);
  };
  const vectors: TokenVectors = (t, h, i) =>
    input('queries')(
      (queries?.offset ?? 0) + t * (queries?.stride ?? kvHeads * dim(shape, 'group') * keyWidth) + h * keyWidth + i,
    );
  const branchTokens = branch?.tokens ?? reach;
  const rotary = branch && {
    width: branch.width,
    queries: (t: number, h: number, i: number) =>
      input('branchQueries')(branch.queries.offset + t * branch.queries.stride + h * branch.queries.head + i),
    keys: (of: number, t: number, kvHead: number, i: number) =>
      input('branchKeys')(
        ((of * branchTokens + t) * branch.heads + (branch.heads === 1 ? 0 : kvHead)) * branch.width + i,
      ),
  };
  return {
    scores: { queries: vectors, keys: rowsOf('keys', keyWidth), ...(rotary ? { branch: rotary } : {}) },
    rowsOf,
  };
}

/**
 * One query head of one token: what it attends with, and where its output lies. @param own rows of the chunk are among
 * those attended to
 */
export function chunkRow(subject: Subject, row: number, own: boolean) {
  const { shape } = subject.call;
  const o = subject.options.prefill ?? {};
  const [tokens, context, valueWidth] = [dim(shape, 'queries'), dim(shape, 'context'), dim(shape, 'valueWidth')];
  const heads = dim(shape, 'kvHeads') * dim(shape, 'group');
  const [sequence, token, head] = [Math.floor(row / (tokens * heads)), Math.floor(row / heads) % tokens, row % heads];
  const span: ChunkSpan = o.spans?.[sequence] ?? { before: context, tokens };
  const { scores, rowsOf } = operandsOf(subject, o, context + (own ? tokens : 0));
  return {
    at: { sequence, token, head },
    span,
    output:
      (o.output?.offset ?? 0) +
      (sequence * tokens + token) * (o.output?.stride ?? heads * valueWidth) +
      head * valueWidth,
    operands: { ...scores, values: rowsOf('values', valueWidth) },
  };
}

/** Vectors of a chunk's token: component `i` of a query head. */
type TokenVectors = (token: number, head: number, i: number) => number;

/** Operands of the scores. Rows are of sequences, then KV heads; tokens of queries run through all sequences. */
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

/** Operands of one call. */
export interface ChunkOperands extends ScoreOperands {
  readonly values: CachedRows;
}

export interface QueryPlace {
  readonly sequence: number;
  readonly token: number;
  readonly head: number;
}

/** Score of one query head and token against a row (natural logarithm). */
export function scoreOf(shape: Shape, operands: ScoreOperands, at: QueryPlace): (t: number) => number {
  const { group, queries, keyWidth } = shape as Readonly<Record<'group' | 'queries' | 'keyWidth', number>>;
  const { branch } = operands;
  const content = keyWidth - (branch?.width ?? 0);
  const kvHead = Math.floor(at.head / group);
  const row = rowOf(shape, at);
  const token = at.sequence * queries + at.token;
  const q = Float64Array.from({ length: content }, (_, i) => operands.queries(token, at.head, i));
  const turned = Float64Array.from({ length: branch?.width ?? 0 }, (_, i) => branch?.queries(token, at.head, i) ?? NaN);
  const scale = 1 / Math.sqrt(keyWidth);
  return (t) => {
    let dot = 0;
    for (let i = 0; i < content; i++) dot += (q[i] as number) * operands.keys(row, t, i);
    if (branch)
      for (let i = 0; i < branch.width; i++) dot += (turned[i] as number) * branch.keys(at.sequence, t, kvHead, i);
    return dot * scale;
  };
}

/** The rows that a query head attends to. */
const rowOf = ({ kvHeads, group }: Shape, { sequence, head }: QueryPlace): number =>
  sequence * (kvHeads as number) + Math.floor(head / (group as number));

/** Scores of one query head and token over the first `count` rows (natural logarithm), and those rows' values. */
export function scoresOf(
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
