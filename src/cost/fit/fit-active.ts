/** What to measure next and what to measure again, while a kernel is being calibrated. */
import { CONSTANTS } from '../constants.js';
import type { Sample } from '../../schema/calibration.js';
import type { KernelName } from '../../../kernels/registry.js';
import type { Shape } from '../../../kernels/spec.js';
import { fitBest, fitWith, gpPoints, varyingAxes } from './fit-core.js';
import { dataOf } from './fit-mean.js';
import { priorHyperparameters } from './gp.js';
import { Posterior, type Hyperparameters } from '../covariance.js';
import { coordinatesOf, measuredPoints, type Point } from '../predictor.js';
import { median } from '../../statistics.js';

/** A residual beyond this many deviations (1.48 · MAD, the deviation of normal residuals) is an outlier, ... */
const OUTLIER_DEVIATIONS = CONSTANTS.outlierDeviations.value;
const MAD_TO_DEVIATION = 1.48;
/** ... unless it is smaller than this, log units. */
const SMALLEST_OUTLIER = CONSTANTS.outlierLeast.value;
/** More than this share of outliers is no longer noise but a kernel that the terms do not describe. */
const MAX_OUTLIER_SHARE = CONSTANTS.outlierShare.value;
/** The first points are spread by distance alone: the middle and the corners. */
const SPREAD_FIRST = 3;
/** Until there are this many, points are drawn at random: hyperparameters of fewer would be the prior's. */
const RANDOM_UNTIL = 10;
/**
 * From then on: the least certain of this many drawn at random. The largest deviation of all is at the edge of the
 * shapes nearly every time, and points there tell little about the rest: on smooth synthetic kernels it predicts worse
 * than points drawn at random do. Two keep most of what is gained on kernels that are not smooth
 * (test/cost/fit-active.test.ts).
 */
const DRAWN = 2;
/** So few candidates are all looked at: drawing leaves nothing to chance but the order. */
const FEW_CANDIDATES = 8;
const REFIT_GROWTH = 1.25;

/**
 * Indices of samples to re-measure: |leave-one-out residual| > max(4 · 1.48 · MAD, log 1.5). The worst point is taken
 * out before the next fit, since one bad time spoils its neighbours' residuals and hides behind the nugget it causes;
 * points that the final fit explains after all do not come back, which costs a repetition at most.
 */
export function outliers(kernel: KernelName, variant: string, samples: readonly Sample[]): number[] {
  let points = measuredPoints(kernel, variant, samples);
  if (points.length < 3) return [];
  const most = Math.max(1, Math.floor(MAX_OUTLIER_SHARE * points.length));
  const found: Point[] = [];
  let axes = varyingAxes(kernel, points);
  const { mean, looResiduals, hyper } = fitBest(kernel, variant, points, axes);
  let residuals = looResiduals;
  let warm: Hyperparameters = hyper;
  while (found.length < most && points.length >= 3) {
    const sizes = residuals.map(Math.abs);
    const worst = sizes.reduce((best, size, i) => (size > sizes[best]! ? i : best), 0);
    const typical = median(sizes);
    if (sizes[worst]! <= Math.max(OUTLIER_DEVIATIONS * MAD_TO_DEVIATION * typical, SMALLEST_OUTLIER)) break;
    found.push(points[worst]!);
    points = points.filter((_, i) => i !== worst);
    const before = axes;
    axes = varyingAxes(kernel, points);
    warm = { ...warm, lengthScales: axes.map((axis) => warm.lengthScales[before.indexOf(axis)]!) };
    ({ looResiduals: residuals, hyper: warm } = fitWith(
      dataOf(kernel, variant, points),
      gpPoints(points, axes),
      mean.termIndices,
      warm,
    ));
  }
  return found.flatMap((point) => point.sampleIndices).sort((a, b) => a - b);
}

/**
 * Returns the function that picks the candidate to measure next: space-filling at random, mixed with the largest
 * posterior deviation (see DRAWN). The draws depend on the number of points only, so that the same calibration chooses
 * the same points. Hyperparameters are refitted when the set has grown by a quarter. Axes that only the candidates vary
 * count too, with the prior's length scale.
 */
export function activeSelector(
  kernel: KernelName,
  variant: string,
): (samples: readonly Sample[], candidates: readonly Shape[]) => number {
  let fitted: { size: number; lengthScales: Map<string, number>; hyper: Hyperparameters } | undefined;
  return (samples, candidates) => {
    if (candidates.length === 0) throw new Error(`no candidate shape of ${kernel} (${variant}) to choose from`);
    const points = measuredPoints(kernel, variant, samples);
    const axes = varyingAxes(kernel, [...points, ...candidates.map((shape) => ({ shape }))]);
    if (points.length < SPREAD_FIRST) return farthest(points, candidates, axes);
    const draw = (index: number): number => Math.floor(fraction(points.length, index) * candidates.length);
    if (points.length < RANDOM_UNTIL) return draw(0);
    if (!fitted || points.length >= REFIT_GROWTH * fitted.size) {
      const measured = varyingAxes(kernel, points);
      const data = dataOf(kernel, variant, points);
      const { hyper } = fitWith(
        data,
        gpPoints(points, measured),
        data.terms[0]!.map((_, j) => j),
      );
      fitted = {
        size: points.length,
        hyper,
        lengthScales: new Map(measured.map((axis, a) => [axis, hyper.lengthScales[a]!])),
      };
    }
    const { hyper, lengthScales } = fitted;
    const unknown = priorHyperparameters(1).lengthScales[0]!;
    const { x, n, d } = gpPoints(points, axes);
    const posterior = new Posterior(x, new Float64Array(n), {
      ...hyper,
      lengthScales: axes.map((axis) => lengthScales.get(axis) ?? unknown),
    });
    const drawn =
      candidates.length <= FEW_CANDIDATES
        ? candidates.map((_, i) => i)
        : Array.from({ length: DRAWN }, (_, i) => draw(i));
    const places = coordinatesOf(candidates, axes);
    return drawn[argmax(drawn, (i) => posterior.at(places.subarray(drawn[i]! * d, drawn[i]! * d + d)).deviation)]!;
  };
}

/** A fraction in [0, 1) that looks random ("lowbias32" by Chris Wellons). */
function fraction(count: number, index: number): number {
  let x = Math.imul(count + 1, 0x9e3779b1) ^ Math.imul(index + 1, 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
  x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
  return ((x ^ (x >>> 16)) >>> 0) / 2 ** 32;
}

/** One choice without memory: index of the candidate that teaches most. In a loop use `activeSelector`. */
export function mostInformative(
  kernel: KernelName,
  variant: string,
  samples: readonly Sample[],
  candidates: readonly Shape[],
): number {
  return activeSelector(kernel, variant)(samples, candidates);
}

/**
 * The candidate farthest from all points, each axis scaled to the candidates' and points' range; without points, the
 * most central.
 */
function farthest(points: readonly Point[], candidates: readonly Shape[], axes: readonly string[]): number {
  const d = axes.length;
  const all = coordinatesOf([...candidates, ...points.map((point) => point.shape)], axes);
  const count = candidates.length + points.length;
  const squaredDistance = (i: number, other: (axis: number) => number) => {
    let sum = 0;
    for (let a = 0; a < d; a++) sum += ((all[i * d + a]! - other(a)) / ranges[a]!.width) ** 2;
    return sum;
  };
  const ranges = axes.map((_, a) => {
    let [low, high] = [Infinity, -Infinity];
    for (let i = 0; i < count; i++) [low, high] = [Math.min(low, all[i * d + a]!), Math.max(high, all[i * d + a]!)];
    return { width: high - low, centre: (low + high) / 2 };
  });
  if (points.length === 0) return argmax(candidates, (i) => -squaredDistance(i, (a) => ranges[a]!.centre));
  return argmax(candidates, (i) => {
    let least = Infinity;
    for (let p = candidates.length; p < count; p++)
      least = Math.min(
        least,
        squaredDistance(i, (a) => all[p * d + a]!),
      );
    return least;
  });
}

function argmax(list: readonly unknown[], score: (index: number) => number): number {
  let best = 0;
  let most = -Infinity;
  for (let i = 0; i < list.length; i++) {
    const value = score(i);
    if (value > most) [best, most] = [i, value];
  }
  return best;
}
