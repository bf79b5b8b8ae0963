/** Figures of a plan as text, for sentences and tables. */
import type { Interval } from '../../cost/evidence.js';
import { formatMilliseconds, formatNumber } from '../../numbers/units.js';
import type { DecodeFigures, Plan } from '../types.js';

/** Decode figures that are shown: at the operating point. */
export const shownDecode = (p: Plan): DecodeFigures => p.knee ?? p.decode;

/** Ends so many times apart leave the middle a guess. */
const GUESS = 10;

/** `~` before an estimate whose interval is too wide for it to be more than a guess. */
export const guessMark = ({ low, high }: Interval): string => (high > GUESS * low ? '~' : '');

/**
 * `35.1 (18–90)` in milliseconds; `11.3s (7.51–18.9s)` where the interval reaches ten seconds; `~51.5 (30–3480)` where
 * it is a guess.
 */
export function timeLabel(seconds: Interval | null): string {
  if (!seconds) return '–';
  if (seconds.high < 10) return timeColumn([seconds]).cells[0]!;
  return `${guessMark(seconds)}${formatNumber(seconds.estimate)}s (${formatNumber(seconds.low)}–${formatNumber(seconds.high)}s)`;
}

/** Times of one column in one unit: seconds where an interval reaches ten of them, else milliseconds. */
export function timeColumn(times: readonly (Interval | null)[]): {
  readonly unit: 'ms' | 's';
  readonly cells: readonly string[];
} {
  const inSeconds = times.some((t) => t !== null && t.high >= 10);
  const text = inSeconds ? formatNumber : formatMilliseconds;
  const cell = (t: Interval): string => `${guessMark(t)}${text(t.estimate)} (${text(t.low)}–${text(t.high)})`;
  return { unit: inSeconds ? 's' : 'ms', cells: times.map((t) => (t ? cell(t) : '–')) };
}

/** For sentences: `35.1 (18–90) ms` or `11.3 (7.51–18.9) s`. */
export function timeWords(seconds: Interval | null): string {
  const { unit, cells } = timeColumn([seconds]);
  return seconds ? `${cells[0]} ${unit}` : '–';
}

/** `62 % measured, 38 % roofline`: evidence of a step's estimate. */
export function shareLabel(d: DecodeFigures): string {
  const parts = Object.entries(d.evidenceShare ?? {}).filter(([, share]) => share >= 0.005);
  return parts.map(([evidence, share]) => `${Math.round(share * 100)} % ${evidence}`).join(', ');
}
