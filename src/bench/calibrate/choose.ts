/** Which point of a calibration is measured next: of which kernel, and at which shape. */
import { best } from '../../numbers/best.js';
import { mix } from '../../numbers/hash.js';
import { workOf } from '../../../kernels/registry.js';
import { randomFrom } from '../../numbers/random.js';
import { median } from '../../numbers/statistics.js';
import { mostTelling } from './spread.js';
import { samplesOf, unfinishedOf, type Track } from './visits.js';

/** Points of a track that are spread over its shapes by their shares, before any is drawn. */
const SPREAD_FIRST = 5;
/** More points than this cost planning more than they add: predicting a call takes time with their square. */
const MOST_POINTS = 96;
const MOST_POINTS_SMALL = 28;
/** Minimum weight of a kernel with a small share of a step, relative to the largest: a fit still needs a few points. */
export const LEAST_SHARE = 1 / 60;
/** Kernels with at least this share of the largest weight may have many points. */
const LARGE_SHARE = 0.05;
/** A point is drawn with a probability that grows with its share, above this floor. */
const LEAST_DRAWN_SHARE = 1 / 400;

/** Assumed time of a visit for each session that ended while the track's first point was prepared. */
const UNFINISHED_SECONDS = 30;

/**
 * Points of every kernel that a row of the default table calls, before a kernel is measured that none calls; and visits
 * in which it must have got them, so that one that fails does not stop the others.
 */
const TABLE_FIRST = { points: 3, visits: 6 };

/**
 * The track whose next point narrows the intervals of steps most for its time. A kernel's error falls about as 1/n with
 * n points, so the track with the smallest n² · seconds / share is next. Kernels that no row of the default table calls
 * come after all others have a few points.
 */
export function leastServed(tracks: readonly Track[]): Track | undefined {
  const largest = tracks.reduce((most, t) => Math.max(most, t.share), Number.MIN_VALUE);
  const visitSeconds = (t: Track): number =>
    t.visitSeconds.length > 0 ? median(t.visitSeconds) : 1 + UNFINISHED_SECONDS * unfinishedOf(t);
  const served = (t: Track): number =>
    ((samplesOf(t).length + 0.5) ** 2 * visitSeconds(t)) / Math.max(LEAST_SHARE, t.share / largest);
  const full = (t: Track): boolean =>
    samplesOf(t).length >= (t.share >= LARGE_SHARE * largest ? MOST_POINTS : MOST_POINTS_SMALL);
  const isScarce = (t: Track): boolean =>
    t.inTable &&
    samplesOf(t).length < TABLE_FIRST.points &&
    t.visitSeconds.length < TABLE_FIRST.visits &&
    unfinishedOf(t) === 0;
  const open = tracks.filter((t) => t.candidates.length > 0 && !full(t));
  return (open.some(isScarce) ? open.filter((t) => t.inTable) : open).reduce<Track | undefined>(
    (least, t) => (!least || served(t) < served(least) ? t : least),
    undefined,
  );
}

/** Index of the candidate with the least work. */
export function lightest({ kernel, variant, candidates }: Pick<Track, 'kernel' | 'variant' | 'candidates'>): number {
  const work = (i: number): number => {
    const { readBytes, writeBytes, flops } = workOf({ kernel, variant, shape: candidates[i]!.shape });
    return readBytes + writeBytes + flops;
  };
  return best([...candidates.keys()], (i) => -work(i)) ?? 0;
}

/** Index of the lightest candidate among those on which something depends. */
export function lightestUsed({ kernel, variant, candidates }: Track): number {
  const largest = candidates.reduce((most, c) => Math.max(most, c.share), 0);
  const used = candidates.filter(({ share }) => share >= LEAST_DRAWN_SHARE * largest);
  return candidates.indexOf(used[lightest({ kernel, variant, candidates: used })]!);
}

/**
 * Index of the track's candidate to measure next. The second is a light one: it shows what a call takes at least, which
 * heavy shapes do not, however many they are. Every other later one is drawn by share.
 */
export function choose(track: Track, seed: number): number {
  const samples = samplesOf(track);
  const { candidates } = track;
  if (samples.length === 1) return lightestUsed(track);
  // Every other point, too: drawing alone leaves some out on which much depends.
  if (samples.length < SPREAD_FIRST || samples.length % 2 === 0) {
    const tried = [...samples, ...track.entry.gaps.filter((g) => g.variant === track.variant)].map((s) => s.shape);
    return mostTelling(tried, candidates);
  }
  return drawByShare(candidates, randomFrom(mix(seed + samples.length)));
}

/** Index of a candidate, drawn by its share (Efraimidis & Spirakis 2006). */
export function drawByShare(candidates: readonly { readonly share: number }[], random: () => number): number {
  const largest = candidates.reduce((most, c) => Math.max(most, c.share), Number.MIN_VALUE);
  const keys = candidates.map(({ share }) => Math.log(random()) / Math.max(LEAST_DRAWN_SHARE, share / largest));
  return keys.indexOf(Math.max(...keys));
}
