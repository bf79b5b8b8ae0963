/** Names and figures of a plan as text, for sentences and tables. */
import type { Interval } from '../../cost/evidence.js';
import { formatMilliseconds, formatNumber } from '../../numbers/units.js';
import type { DecodeFigures, Plan } from '../types.js';
import type { PathChoice } from '../../codecs/codec.js';
import { choiceOf } from '../../codecs/paths.js';
import { codecSpec, hasOwnStorage, isUncompressed } from '../../codecs/registry.js';
import { evictionLabel } from '../../eviction/policy.js';

/** `a, b and c`. */
export const listed = (names: readonly string[]): string =>
  names.length < 2 ? names.join() : `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`;

/** Decode figures that are shown: at the operating point. */
export const shownDecode = (p: Plan): DecodeFigures => p.knee ?? p.decode;

/** Ends so many times apart leave the middle a guess. */
const GUESS = 10;

/** `~` before an estimate whose interval is too wide for it to be more than a guess. */
export const guessMark = ({ low, high }: Interval): string => (high > GUESS * low ? '~' : '');

const GUESSED = '~: a guess, the ends of its interval lie more than ten times apart.';

/** What the mark means, where a table or a text that is shown has it. */
export const guessWords = (shown: readonly string[]): string[] =>
  shown.some((text) => /~\d/.test(text)) ? [GUESSED] : [];

/**
 * `35.1 (18–90)` in milliseconds; `11.3s (7.51–18.9s)` where the interval reaches ten seconds; `~51.5 (30–3480)` where
 * it is a guess.
 */
export function timeLabel(seconds: Interval | null): string {
  if (!seconds) return '–';
  if (seconds.high < 10) return timeColumn([seconds]).cells[0]!;
  return (
    `${guessMark(seconds)}${formatNumber(seconds.estimate)}s ` +
    `(${formatNumber(seconds.low)}–${formatNumber(seconds.high)}s)`
  );
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

/** A path as users name it. */
export const pathLabel = (p: Pick<Plan, 'path' | 'variant'>): PathChoice =>
  choiceOf(p.path, p.variant === 'materialised');

/** `full cache`, `lla-4x by block-absorbed`, `lla-4x by reconstruct with streaming:4+256`. */
export function planName(p: Pick<Plan, 'codec' | 'path' | 'variant' | 'eviction' | 'cacheType'>): string {
  const type = ['f16', 'bf16'].includes(p.cacheType) || hasOwnStorage(p.codec) ? '' : ` in ${p.cacheType}`;
  // A codec with one way to be read has no path to name.
  const path = codecSpec(p.codec).paths.length === 1 ? '' : ` by ${pathLabel(p)}`;
  const eviction = p.eviction ? ` with ${evictionLabel(p.eviction)}` : '';
  return `${isUncompressed(p.codec) ? 'full cache' : p.codec.label}${type}${path}${eviction}`;
}

/** What somebody needs before a codec runs: `nothing`, `kernels`, `training, kernels`. */
export function needsOf(p: Plan): string {
  const spec = codecSpec(p.codec);
  const needs = [
    ...(spec.windowsLoops ? ['a model trained so'] : spec.untrained || isUncompressed(p.codec) ? [] : ['training']),
    ...(p.servedBy === null ? ['kernels'] : []),
  ];
  return needs.length === 0 ? 'nothing' : needs.join(', ');
}
