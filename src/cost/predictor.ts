/**
 * Prediction side of the cost model: time and 90 % interval of one kernel call from a fitted `Predictor` and the
 * samples it was fitted to. The definition of the model also lives here (points, mean, covariance), so that fitting
 * (fit.ts, gp.ts) and predicting cannot disagree. It runs in a browser: no dependency but the kernels' term lists.
 *
 * Model: log t(x) = log m(x) + offset + g(x), m(x) = Σ θ_j f_j(x) physical terms, g a Gaussian process with a
 * Matérn-3/2 covariance over log2(1 + shape). Interval: jackknife with conformal quantiles, half-widths in log units.
 */
import { CONSTANTS } from './constants.js';
import type { Predictor, Sample } from '../schema/calibration.js';
import { KERNELS, type KernelName } from '../../kernels/registry.js';
import type { Shape } from '../../kernels/spec.js';
import { correctedSeconds, driftExponentOf, typicalSeconds } from '../schema/drift.js';
import { Posterior, type Hyperparameters } from './covariance.js';
import type { Because } from './explain.js';

/** Shape values above this enter the model as this: products of a dozen of them stay far below the float64 range. */
const VALUE_LIMIT = 2 ** 50;
/** A term that is not finite (0 / 0 splits, say) counts as 0 or this, so that no prediction is NaN or infinite. */
const TERM_LIMIT = 1e200;
/** The physical mean never falls below this fraction of the smallest measured time (all terms can vanish at 0). */
const MEAN_FLOOR_FRACTION = 2 ** -10;
/** Predicted times stay within a picosecond and 30 000 years. */
const LOG_SECONDS_LIMIT = Math.log(1e12);
/** Half-widths stay below a factor of 22 000 either way: beyond it an interval only says "unknown". */
const HALF_WIDTH_LIMIT = 10;
/** Two-sided 90 % of a normal distribution, in deviations. */
export const NORMAL_90 = CONSTANTS.normal90.value;

/** A distinct measured shape: samples at the same shape are pooled, else leaving one out would leave its twin in. */
export interface Point {
  shape: Shape;
  /** Typical time of all repetitions with the machine's drift taken off, seconds (schema/drift.ts). */
  seconds: number;
  /** Indices into the samples given. */
  sampleIndices: number[];
}

export type Evidence = 'measured' | 'interpolated' | 'extrapolated';

export interface Prediction {
  seconds: number;
  /** 90 % half-width in log units: the time lies in seconds · exp(±halfWidthLog). */
  halfWidthLog: number;
  evidence: Evidence;
  /** Octaves outside the measured box, summed over the shape fields. */
  octavesOutside: number;
}

function valueOf(shape: Shape, name: string): number {
  const value = shape[name];
  if (value === undefined) throw new Error(`kernel shape lacks ${name}`);
  return value;
}

/** Distinct shapes among the samples of `variant`, in order of first appearance. */
export function measuredPoints(kernel: KernelName, variant: string, samples: readonly Sample[]): Point[] {
  const indicesByShape = new Map<string, number[]>();
  samples.forEach((sample, index) => {
    if (sample.variant !== variant) return;
    const key = KERNELS[kernel].dims.map((name) => valueOf(sample.shape, name)).join(' ');
    const indices = indicesByShape.get(key);
    if (indices) indices.push(index);
    else indicesByShape.set(key, [index]);
  });
  const exponent = driftExponentOf(samples.filter((sample) => sample.variant === variant));
  return [...indicesByShape.values()].map((sampleIndices) => ({
    shape: samples[sampleIndices[0]!]!.shape,
    seconds: typicalSeconds(sampleIndices.flatMap((index) => correctedSeconds(samples[index]!, exponent))),
    sampleIndices,
  }));
}

/** Coordinate of a shape value on its axis, in octaves; 0 is allowed. */
export function coordinate(value: number): number {
  return Math.log2(1 + Math.min(value, VALUE_LIMIT));
}

/** Coordinates of points along axes, row by row. */
export function coordinatesOf(shapes: readonly Shape[], axes: readonly string[]): Float64Array {
  return Float64Array.from(shapes.flatMap((shape) => axes.map((axis) => coordinate(valueOf(shape, axis)))));
}

/** The kernel's physical terms at a shape, each finite. */
export function termsAt(kernel: KernelName, variant: string, shape: Shape): number[] {
  const spec = KERNELS[kernel];
  const { dims } = spec;
  const inRange = dims.every((name) => valueOf(shape, name) <= VALUE_LIMIT);
  const limited = inRange
    ? shape
    : Object.fromEntries(dims.map((name) => [name, Math.min(valueOf(shape, name), VALUE_LIMIT)]));
  const values = spec.terms(limited, variant);
  for (let j = 0; j < values.length; j++) {
    const value = values[j]!;
    if (!(value <= TERM_LIMIT)) values[j] = Number.isNaN(value) ? 0 : TERM_LIMIT;
  }
  return values;
}

/** The smallest mean that the model allows, seconds. */
export function meanFloor(points: readonly Point[]): number {
  return MEAN_FLOOR_FRACTION * points.reduce((least, point) => Math.min(least, point.seconds), Infinity);
}

/** log m(x): `theta[j]` belongs to `terms[termIndices[j]]`. */
export function logMean(
  terms: ArrayLike<number>,
  termIndices: readonly number[],
  theta: ArrayLike<number>,
  floor: number,
): number {
  let sum = 0;
  for (let j = 0; j < termIndices.length; j++) sum += theta[j]! * terms[termIndices[j]!]!;
  return Math.log(Math.max(sum, floor));
}

/** Octaves by which `value` lies outside [low, high] in coordinates. */
function octavesBeyond(value: number, low: number, high: number): number {
  return Math.max(0, low - value, value - high);
}

/**
 * Octaves outside the measured box, summed over the kernel's fields. A field that never varied and differs now was
 * never tested at all: that counts as one octave more than its distance.
 */
function boxOf(kernel: KernelName, shapes: readonly Shape[], axes: readonly string[]): (shape: Shape) => number {
  const fields = KERNELS[kernel].dims.map((name) => {
    const values = shapes.map((shape) => coordinate(valueOf(shape, name)));
    return { name, low: Math.min(...values), high: Math.max(...values), untested: axes.includes(name) ? 0 : 1 };
  });
  return (shape) => {
    let octaves = 0;
    for (const { name, low, high, untested } of fields) {
      const beyond = octavesBeyond(coordinate(valueOf(shape, name)), low, high);
      if (beyond > 0) octaves += beyond + untested;
    }
    return octaves;
  };
}

/** Half-width before the widening outside: h = max(q_J, max(1.645, q_N) · sd), log units. */
export function conformalHalfWidth(quantileAbsolute: number, quantileNormalised: number, deviation: number): number {
  return Math.max(quantileAbsolute, Math.max(NORMAL_90, quantileNormalised) * deviation);
}

/** What a prediction needs of a fitted predictor. */
export type Model = Hyperparameters &
  Pick<
    Predictor,
    'termIndices' | 'theta' | 'axes' | 'offset' | 'quantileAbsolute' | 'quantileNormalised' | 'kappaPerOctave'
  >;

/** Predicts one call; `because` takes the parts of the half-width. */
export type Predict = (shape: Shape, because?: Because) => Prediction;

/**
 * Returns the function that predicts one call. The factorisation happens at the first call; a prediction then costs
 * O(n) for the time and O(n²) for the deviation, without allocation but for the result and the list of terms.
 *
 * At a measured shape the time lies between the posterior and the shape's own, nearer to the surer one. Without
 * `repeats` it is the posterior: with 10 % noise that is nearer to the true time (6.6 % against 7.6 % on synthetic
 * kernels; "at pts" and "raw pts" in scripts/coverage-experiment.ts).
 * @param repeats half-width, log units, of a measured shape's time around what was measured (cost/repeats.ts); unless
 *   given, a measured shape is as wide as any
 */
export function makePredictor(
  kernel: KernelName,
  variant: string,
  samples: readonly Sample[],
  predictor: Predictor,
  repeats = Infinity,
): Predict {
  let predict: Predict | undefined;
  return (shape, because) =>
    (predict ??= predictFrom(kernel, variant, measuredPoints(kernel, variant, samples), predictor, repeats))(
      shape,
      because,
    );
}

/** The same, from distinct points and at once. */
export function predictFrom(
  kernel: KernelName,
  variant: string,
  points: readonly Point[],
  model: Model,
  repeats = Infinity,
): Predict {
  const { axes, termIndices, theta, offset } = model;
  if (points.length === 0)
    throw new Error(`no samples of ${kernel} (${variant}): calibrate this kernel before pricing it`);
  const shapes = points.map((point) => point.shape);
  const floor = meanFloor(points);
  const octavesOutsideOf = boxOf(kernel, shapes, axes);
  const logMeanAt = (shape: Shape) => logMean(termsAt(kernel, variant, shape), termIndices, theta, floor) + offset;
  const residuals = Float64Array.from(points, (point) => Math.log(point.seconds) - logMeanAt(point.shape));
  const posterior = new Posterior(coordinatesOf(shapes, axes), residuals, model);
  const place = new Float64Array(axes.length);
  return (shape, because) => {
    for (let a = 0; a < axes.length; a++) place[a] = coordinate(valueOf(shape, axes[a]!));
    const { mean, deviation, point } = posterior.at(place);
    const octavesOutside = octavesOutsideOf(shape);
    const between = conformalHalfWidth(model.quantileAbsolute, model.quantileNormalised, deviation);
    const beyond = model.kappaPerOctave * octavesOutside;
    const anywhere = between + beyond;
    if (because) {
      because(`each of ${points.length} measured shapes in turn`, between);
      if (beyond > 0)
        because(`the top octaves of each size; this call lies ${octavesOutside.toFixed(1)} outside`, beyond, 'added');
    }
    // Weights by the squares of half-widths: `own` is 0 where the place is no point.
    const own = point < 0 || octavesOutside > 0 ? 0 : anywhere ** 2 / (anywhere ** 2 + repeats ** 2);
    const logSeconds = logMeanAt(shape) + mean + (own > 0 ? own * (residuals[point]! - mean) : 0);
    const halfWidth = own > 0 ? Math.min(anywhere, repeats) : anywhere;
    if (own > 0) because?.('the second visit of each measured shape, which this one is', halfWidth, 'instead');
    return {
      seconds: Math.exp(Math.min(LOG_SECONDS_LIMIT, Math.max(-LOG_SECONDS_LIMIT, logSeconds))),
      halfWidthLog: Math.min(HALF_WIDTH_LIMIT, halfWidth),
      evidence: octavesOutside > 0 ? 'extrapolated' : point >= 0 ? 'measured' : 'interpolated',
      octavesOutside,
    };
  };
}
