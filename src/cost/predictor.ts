/**
 * Prediction side of the cost model: time and 90 % interval of one kernel call from a fitted `Predictor` and the
 * samples it was fitted to. The definition of the model also lives here (points, mean, covariance), so that fitting
 * (fit.ts, gp.ts) and predicting cannot disagree. It runs in a browser: no dependency but the kernels' term lists.
 *
 * Model: log t(x) = log m(x) + offset + g(x), m(x) = Σ θ_j f_j(x) physical terms, g a Gaussian process with a
 * Matérn-3/2 covariance over log2(1 + shape). Interval: jackknife with conformal quantiles, half-widths in log units.
 */
import type { Predictor, Sample } from '../schema/calibration.js';
import { KERNELS, type KernelName } from '../../kernels/registry.js';
import type { Shape } from '../../kernels/spec.js';
import { correctedSeconds, driftExponentOf, typicalSeconds } from '../schema/drift.js';

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
export const NORMAL_90 = 1.645;

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

const SQRT3 = Math.sqrt(3);

/** Matérn-3/2 correlation at a squared scaled distance. Rasmussen & Williams, Gaussian Processes for ML, eq. 4.17. */
export function matern32(squaredDistance: number): number {
  const r = SQRT3 * Math.sqrt(squaredDistance);
  return (1 + r) * Math.exp(-r);
}

/**
 * Cholesky factor L (lower, row-major, in place of the lower triangle) of a symmetric positive definite matrix.
 * A pivot lost to rounding is raised to `pivotFloor`: the point then repeats another one and carries no information.
 */
export function cholesky(matrix: Float64Array, n: number, pivotFloor: number): Float64Array {
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) {
      let sum = matrix[i * n + j]!;
      for (let k = 0; k < j; k++) sum -= matrix[i * n + k]! * matrix[j * n + k]!;
      matrix[i * n + j] = i === j ? Math.sqrt(Math.max(sum, pivotFloor)) : sum / matrix[j * n + j]!;
    }
  }
  return matrix;
}

/** Solves L v = b in place. */
export function solveLower(l: Float64Array, n: number, b: Float64Array): Float64Array {
  for (let i = 0; i < n; i++) {
    let sum = b[i]!;
    for (let k = 0; k < i; k++) sum -= l[i * n + k]! * b[k]!;
    b[i] = sum / l[i * n + i]!;
  }
  return b;
}

/** Solves Lᵀ v = b in place. */
export function solveUpper(l: Float64Array, n: number, b: Float64Array): Float64Array {
  for (let i = n - 1; i >= 0; i--) {
    const v = b[i]! / l[i * n + i]!;
    b[i] = v;
    for (let k = 0; k < i; k++) b[k] = b[k]! - l[i * n + k]! * v;
  }
  return b;
}

export interface Hyperparameters {
  /** One an axis, octaves. */
  lengthScales: readonly number[];
  /** Of the log residual. */
  signalVariance: number;
  /** Nugget, of the log residual. */
  noiseVariance: number;
}

/** Cholesky factor of the covariance of n points, nugget included. `x`: coordinates, row by row. */
export function covarianceFactor(x: Float64Array, n: number, hyper: Hyperparameters): Float64Array {
  const d = hyper.lengthScales.length;
  const k = new Float64Array(n * n);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < i; j++) {
      let squared = 0;
      for (let a = 0; a < d; a++) squared += ((x[i * d + a]! - x[j * d + a]!) / hyper.lengthScales[a]!) ** 2;
      k[i * n + j] = hyper.signalVariance * matern32(squared);
    }
    k[i * n + i] = hyper.signalVariance + hyper.noiseVariance;
  }
  return cholesky(k, n, 1e-12 * (hyper.signalVariance + hyper.noiseVariance));
}

/** Posterior of a process at one place after another; holds its own scratch space, so `at` allocates nothing. */
export class Posterior {
  mean = 0;
  /** Of a new measurement: the nugget is included. */
  deviation = 0;
  /** Index of the point that the place is; -1 for none. */
  point = -1;
  private readonly n: number;
  private readonly factor: Float64Array;
  private readonly alpha: Float64Array;
  private readonly k: Float64Array;

  /** `x`: coordinates of the points, row by row; `y`: log residuals there. */
  constructor(
    private readonly x: Float64Array,
    y: Float64Array,
    private readonly hyper: Hyperparameters,
  ) {
    this.n = y.length;
    this.factor = covarianceFactor(x, this.n, hyper);
    this.alpha = solveUpper(this.factor, this.n, solveLower(this.factor, this.n, y.slice()));
    this.k = new Float64Array(this.n);
  }

  /** Sets the fields to the posterior at these coordinates. Rasmussen & Williams eq. 2.25 and 2.26. */
  at(place: Float64Array): this {
    const {
      x,
      n,
      k,
      alpha,
      hyper: { lengthScales, signalVariance, noiseVariance },
    } = this;
    const d = lengthScales.length;
    this.mean = 0;
    this.point = -1;
    for (let i = 0; i < n; i++) {
      let squared = 0;
      for (let a = 0; a < d; a++) squared += ((x[i * d + a]! - place[a]!) / lengthScales[a]!) ** 2;
      if (squared === 0) this.point = i;
      k[i] = signalVariance * matern32(squared);
      this.mean += k[i]! * alpha[i]!;
    }
    solveLower(this.factor, n, k);
    let variance = signalVariance + noiseVariance;
    for (let i = 0; i < n; i++) variance -= k[i]! * k[i]!;
    this.deviation = Math.sqrt(Math.max(variance, noiseVariance));
    return this;
  }
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
): (shape: Shape) => Prediction {
  let predict: ((shape: Shape) => Prediction) | undefined;
  return (shape) =>
    (predict ??= predictFrom(kernel, variant, measuredPoints(kernel, variant, samples), predictor, repeats))(shape);
}

/** The same, from distinct points and at once. */
export function predictFrom(
  kernel: KernelName,
  variant: string,
  points: readonly Point[],
  model: Model,
  repeats = Infinity,
): (shape: Shape) => Prediction {
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
  return (shape) => {
    for (let a = 0; a < axes.length; a++) place[a] = coordinate(valueOf(shape, axes[a]!));
    const { mean, deviation, point } = posterior.at(place);
    const octavesOutside = octavesOutsideOf(shape);
    const anywhere =
      conformalHalfWidth(model.quantileAbsolute, model.quantileNormalised, deviation) +
      model.kappaPerOctave * octavesOutside;
    // Weights by the squares of half-widths: `own` is 0 where the place is no point.
    const own = point < 0 || octavesOutside > 0 ? 0 : anywhere ** 2 / (anywhere ** 2 + repeats ** 2);
    const logSeconds = logMeanAt(shape) + mean + (own > 0 ? own * (residuals[point]! - mean) : 0);
    const halfWidth = own > 0 ? Math.min(anywhere, repeats) : anywhere;
    return {
      seconds: Math.exp(Math.min(LOG_SECONDS_LIMIT, Math.max(-LOG_SECONDS_LIMIT, logSeconds))),
      halfWidthLog: Math.min(HALF_WIDTH_LIMIT, halfWidth),
      evidence: octavesOutside > 0 ? 'extrapolated' : point >= 0 ? 'measured' : 'interpolated',
      octavesOutside,
    };
  };
}
