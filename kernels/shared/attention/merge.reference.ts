/** The merge of split partials and the current token's exact key and value, in float64. */
import type { CurrentOptions } from '../../attention-options.js';
import type { Placement as Vectors } from '../../placement.js';
import type { Checker, Subject } from '../../reference.js';

/** Score (to base 2) and value of the current token for one query head. */
export function currentToken(
  s: Subject,
  row: number,
  keyWidth: number,
  valueWidth: number,
): { score: number; value: number[] } {
  const { heads, group, scale, queries, keys, values }: CurrentOptions = s.options.current ?? { heads: 1, group: 1 };
  const [sequence, head] = [Math.floor(row / heads), row % heads];
  const kvHead = Math.floor(head / group);
  const first = (at: Vectors | undefined, count: number, width: number, index: number): number =>
    (at?.offset ?? 0) + sequence * (at?.stride ?? count * width) + index * width;
  const [q, k, v] = [
    first(queries, heads, keyWidth, head),
    first(keys, heads / group, keyWidth, kvHead),
    first(values, heads / group, valueWidth, kvHead),
  ];
  const absorbed = s.call.variant === 'absorbed';
  let dot = 0;
  for (let i = 0; i < keyWidth; i++)
    dot +=
      s.input('queries')(q + i) *
      (s.input('newKeys')(k + i) - (absorbed ? s.input('keyMeans')(kvHead * keyWidth + i) : 0));
  return {
    score: dot * (scale ?? keyWidth ** -0.5) * Math.LOG2E,
    value: Array.from({ length: valueWidth }, (_, i) => s.input('newValues')(v + i)),
  };
}

/** An output row followed by its sum; the maximum is compared through it, as it may be any number near 0. */
export const attended = (s: Subject, row: number, { o, m, l }: Attended): ReturnType<Checker['row']> => ({
  expected: [...o, l],
  actual: (i) =>
    i < o.length
      ? s.output('output')(row * o.length + i)
      : s.output('stats')(2 * row + 1) * 2 ** (s.output('stats')(2 * row) - m),
});

/** An output row with its maximum (to base 2) and its sum. `l` is 0 where there was nothing to attend to. */
export interface Attended {
  readonly o: readonly number[];
  readonly m: number;
  readonly l: number;
}

/** Maximum of no scores, as the kernels write it. */
export const LOWEST = Math.fround(-3e38);

/**
 * Folds splits into one row.
 * @param splits not yet divided by their sums
 */
export function mergeSplits(splits: readonly Attended[], width: number): Attended {
  const there = splits.filter((s) => s.l > 0);
  const m = there.reduce((top, s) => Math.max(top, s.m), LOWEST);
  const l = there.reduce((sum, s) => sum + 2 ** (s.m - m) * s.l, 0);
  const o = Array.from({ length: width }, (_, i) =>
    l === 0 ? 0 : there.reduce((sum, s) => sum + 2 ** (s.m - m) * (s.o[i] as number), 0) / l,
  );
  return { o, m, l };
}

/**
 * Adds a token of score `score` (to base 2) and value `value` to a row.
 * @param before its o is divided by l
 */
export function withToken(before: Attended, score: number, value: readonly number[]): Attended {
  if (before.l === 0) return { o: value, m: Math.max(score, LOWEST), l: 1 };
  const m = Math.max(before.m, score);
  const [rest, share] = [before.l * 2 ** (before.m - m), 2 ** (score - m)];
  return { o: value.map((v, i) => (rest * (before.o[i] as number) + share * v) / (rest + share)), m, l: rest + share };
}
