/**
 * The merge of split partials and the current token's exact key and value, in float64: the specification of
 * attend_merge and attend_current.
 */

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
