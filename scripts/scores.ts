/** Judged predictions of a script, written down for scripts/frozen-predictions.mjs where SCORES names a file. */
import { appendFileSync } from 'node:fs';

/** A time that was predicted without itself; natural logarithms of seconds relative to the estimate. */
export interface Judged {
  /** Measured over estimate. */
  readonly error: number;
  /** Ends of the interval over the estimate: low ≤ 0 ≤ high. */
  readonly low: number;
  readonly high: number;
}

/** @param group judged together: what was left out, and of what */
export function keepScores(group: string, judged: readonly Judged[]): void {
  const file = process.env['SCORES'];
  if (file === undefined || judged.length === 0) return;
  appendFileSync(
    file,
    judged.map(({ error, low, high }) => `${[JSON.stringify(group), error, low, high].join()}\n`).join(''),
  );
}
