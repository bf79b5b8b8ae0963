/**
 * Which point of a calibration is measured next: that which lowers the variance of the steps of plans most for its time
 * (Cohn 1996, "Neural network exploration using optimal experiment design"). The variance of a call is the model's
 * before it has seen any time (cost/process.ts), given the shapes that were measured; that of steps is the sum over
 * their calls, each by its squared share of the time (anchors.ts).
 */
import { best } from '../../numbers/best.js';
import { CONSTANTS } from '../../cost/constants.js';
import { Calls, scalesOf, type Lawful } from '../../cost/predictor.js';
import { Process, type Place } from '../../cost/process.js';
import { workOf, type KernelName } from '../../../kernels/registry.js';
import type { Shape } from '../../../kernels/spec.js';
import { median } from '../../numbers/statistics.js';
import { samplesOf, unfinishedOf, type Candidate, type Track } from './visits.js';

/** More points than this cost planning more than they add: predicting a call takes time with their square. */
const MOST_POINTS = 96;
/** So many of the heaviest candidates are considered; others are when those are measured. */
const CONSIDERED = 200;
/** Calls of which no share is known still count, after all others. */
const LEAST_SHARE = 1e-12;
/** Assumed time of a visit for each session that ended while the track's first point was prepared. */
const UNFINISHED_SECONDS = 30;

const squared = ({ value }: { readonly value: number }): number => value ** 2;
const HYPER = {
  effectVariances: [squared(CONSTANTS.unmeasured), squared(CONSTANTS.termPrior)],
  signalVariance: squared(CONSTANTS.signalPrior),
  noiseVariance: squared(CONSTANTS.noisePrior),
  lengthScale: CONSTANTS.lengthPrior.value,
} as const;

/** A candidate's index, and by how much measuring it lowers the variance of steps. */
interface Telling {
  readonly index: number;
  readonly lowered: number;
}

/**
 * The candidate that tells most, of itself and of the others. There must be one.
 * @param reach of the device's ceilings: the law before anything is measured
 */
export function mostTelling(
  { kernel, variant }: { readonly kernel: KernelName; readonly variant: string },
  measured: readonly Shape[],
  candidates: readonly Candidate[],
  reach: Lawful,
): Telling {
  const weightOf = (i: number): number => Math.max(LEAST_SHARE, candidates[i]!.share);
  const considered = [...candidates.keys()].sort((a, b) => weightOf(b) - weightOf(a) || a - b).slice(0, CONSIDERED);
  const shapes = considered.map((i) => candidates[i]!.shape);
  const calls = new Calls(kernel, variant, reach);
  const scales = scalesOf([...measured, ...shapes].map((shape) => calls.sharesAt(shape)));
  const placesOf = (list: readonly Shape[]): Place[] => list.map((shape) => calls.placeAt(shape, scales));
  const together = new Process(placesOf(measured), new Float64Array(measured.length), HYPER).covarianceOf(
    placesOf(shapes),
  );
  const m = considered.length;
  const weights = considered.map(weightOf);
  const lowered = weights.map((_, c) => {
    const row = together.subarray(c * m, c * m + m);
    return weights.reduce((sum, w, j) => sum + w * row[j]! ** 2, 0) / (row[c]! + HYPER.noiseVariance);
  });
  const most = best([...lowered.keys()], (c) => lowered[c]!)!;
  return { index: considered[most]!, lowered: lowered[most]! };
}

/** What `mostTelling` said of a track, until a point of it is tried or its candidates change. */
const KNOWN = new WeakMap<Track, Telling & { readonly tried: number; readonly left: number }>();

function tellingOf(track: Track, reach: Lawful): Telling {
  const { candidates, entry, variant } = track;
  const tried = [...samplesOf(track), ...entry.gaps.filter((gap) => gap.variant === variant)];
  const known = KNOWN.get(track);
  if (known?.tried === tried.length && known.left === candidates.length) return known;
  const shapes = tried.map(({ shape }) => shape);
  const found = { ...mostTelling(track, shapes, candidates, reach), tried: tried.length, left: candidates.length };
  KNOWN.set(track, found);
  return found;
}

/** The track, and index of its candidate, whose measurement lowers the variance of steps most for its time. */
export function nextPoint(tracks: readonly Track[], reach: Lawful): { track: Track; index: number } | undefined {
  const secondsOf = (t: Track): number =>
    t.visitSeconds.length > 0 ? median(t.visitSeconds) : 1 + UNFINISHED_SECONDS * unfinishedOf(t);
  const open = tracks.filter((t) => t.candidates.length > 0 && samplesOf(t).length < MOST_POINTS);
  const track = best(open, (t) => tellingOf(t, reach).lowered / secondsOf(t));
  return track && { track, index: tellingOf(track, reach).index };
}

/** Index of the candidate with the least work. */
export function lightest({ kernel, variant, candidates }: Pick<Track, 'kernel' | 'variant' | 'candidates'>): number {
  const work = (i: number): number => {
    const { readBytes, writeBytes, flops } = workOf({ kernel, variant, shape: candidates[i]!.shape });
    return readBytes + writeBytes + flops;
  };
  return best([...candidates.keys()], (i) => -work(i)) ?? 0;
}
