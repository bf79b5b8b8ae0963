/** Attention over cached rows in float64, by its definition: which tokens a call reads, and the softmax. */
import type { Span } from '../../attention-options.js';
import { cacheRow, capacityOf } from '../../host/cache-layout.js';
import { bufferOf } from '../../host/plan.js';
import { dim, type Row, type Subject, type Scalars } from '../../reference.js';
import { GROUP_SIZE, storageOfVariant, type Shape } from '../../spec.js';

export const queryHeads = (shape: Shape): number =>
  dim(shape, 'sequences') * dim(shape, 'kvHeads') * dim(shape, 'group');

export const merged = (s: Subject, row: number, width: number): ((i: number) => number) => {
  const partials = s.output('partials');
  const splits = bufferOf(s.plan, 'partials').bytes / (4 * queryHeads(s.call.shape) * (width + 2));
  const values = mergedRow(partials, row, splits, width);
  return (i) => values[i] as number;
};

const runs = new WeakMap<Subject, Run>();

/** The tokens that an attention call reads, as foldOf lays them out. Worked out once a check. */
export function runOf(s: Subject): Run {
  const run = runs.get(s) ?? readRun(s);
  runs.set(s, run);
  return run;
}

function readRun(s: Subject): Run {
  const { pinned = 0, firstPosition = 0, spans, pinnedQuery } = s.options.run ?? {};
  const { shape } = s.call;
  const span = (sequence: number): Span =>
    spans?.[sequence] ?? { pinned: 0, firstPosition, ring: dim(shape, 'context') };
  const longest = Array.from({ length: dim(shape, 'sequences') }, (_, i) => span(i).ring).reduce(
    (a, b) => Math.max(a, b),
    1,
  );
  return runOver(
    span,
    pinned,
    capacityOf(s.options.run?.capacity ?? pinned + longest),
    pinnedQuery ? queryHeads(shape) : 0,
  );
}

/** A run over rows of `capacity` slots, `pinned` of them pinned. @param querySet queries of the first set */
export function runOver(span: (sequence: number) => Span, pinned: number, capacity: number, querySet: number): Run {
  const tokens = new Map<number, readonly Token[]>();
  return {
    span,
    pinned,
    capacity,
    tokens: (sequence) => {
      const known = tokens.get(sequence) ?? tokensOf(span(sequence), pinned, capacity);
      tokens.set(sequence, known);
      return known;
    },
    querySet,
  };
}

/** A cache of the call in its own storage. */
export const cachedRows = (s: Subject, name: string, width: number, { capacity }: Pick<Run, 'capacity'>): CachedRows =>
  cacheRow(
    s.inputWords(name),
    storageOfVariant(s.call.variant),
    width,
    dim(s.call.shape, 'groupSize') || GROUP_SIZE,
    capacity,
  );

/**
 * An output row, followed by the scores where the variant writes them: those to base 2 in the slots of their tokens.
 */
export function withScores(
  s: Subject,
  row: number,
  run: Run,
  { output, scores }: { output: number[]; scores: Map<number, number> },
): Row {
  const actual = merged(s, row, output.length);
  if (!s.call.variant.endsWith('+scores')) return { expected: output, actual };
  const written = [...scores];
  return {
    expected: [...output, ...written.map(([, score]) => score)],
    actual: (i) =>
      i < output.length
        ? actual(i)
        : s.output('scores')(row * run.capacity + (written[i - output.length] as [number, number])[0]) / Math.LOG2E,
  };
}

/** softmax(scores) · rows. */
export function weightedSum(scores: Float64Array, width: number, row: (token: number, i: number) => number): number[] {
  const top = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const weights = scores.map((s) => Math.exp(s - top));
  const total = weights.reduce((a, b) => a + b, 0);
  const out = new Array<number>(width).fill(0);
  weights.forEach((p, token) => {
    for (let i = 0; i < width; i++) out[i] = (out[i] as number) + (p / total) * row(token, i);
  });
  return out;
}

/** Output of a query head that gives tokens these scores (natural logarithm), and the scores by slot. */
export const attendedRow = (
  tokens: readonly Token[],
  scores: Float64Array,
  width: number,
  value: (slot: number, i: number) => number,
): { output: number[]; scores: Map<number, number> } => ({
  output: weightedSum(scores, width, (t, i) => value((tokens[t] as Token).slot, i)),
  scores: new Map(tokens.map(({ slot }, t) => [slot, scores[t] as number])),
});

/** A token that a call reads. */
export interface Token {
  readonly slot: number;
  readonly position: number;
  readonly pinned: boolean;
}

/**
 * Slots of the tokens that a sequence's span holds, with their positions: the pinned ones (their position is their slot
 * here), then the ring.
 */
function tokensOf(span: Span, pinned: number, capacity: number): Token[] {
  const ring = capacity - pinned;
  return [
    ...Array.from({ length: span.pinned }, (_, slot) => ({ slot, position: slot, pinned: true })),
    ...Array.from({ length: span.ring }, (_, i) => ({
      slot: pinned + ((span.firstPosition + i) % ring),
      position: span.firstPosition + i,
      pinned: false,
    })),
  ];
}

/**
 * Which tokens of a row an attention call reads: the span of every sequence, the pinned slots and all slots of a row.
 */
export interface Run {
  readonly span: (sequence: number) => Span;
  readonly pinned: number;
  readonly capacity: number;
  /** The tokens of a sequence: pinned ones, then the ring's. */
  readonly tokens: (sequence: number) => readonly Token[];
  /** Queries of the first set, where pinned tokens meet a second one. */
  readonly querySet: number;
}

/** A cache as stored: component `i` of a row's slot. */
export type CachedRows = (row: number, slot: number, i: number) => number;

/** Folds split partials [o, m, l] (m to base 2) of one row into its output. */
export function mergedRow(partial: Scalars, row: number, splits: number, width: number): number[] {
  const at = (split: number, i: number): number => partial((row * splits + split) * (width + 2) + i);
  let top = -Infinity;
  for (let s = 0; s < splits; s++) top = Math.max(top, at(s, width));
  let total = 0;
  const out = new Array<number>(width).fill(0);
  for (let s = 0; s < splits; s++) {
    const fade = 2 ** (at(s, width) - top);
    total += fade * at(s, width + 1);
    for (let i = 0; i < width; i++) out[i] = (out[i] as number) + fade * at(s, i);
  }
  return out.map((x) => x / total);
}
