/**
 * Fitting the Gaussian process on log residuals: MAP hyperparameters and closed-form leave-one-out. The covariance
 * itself is defined in predictor.ts. Equation numbers: Rasmussen & Williams, Gaussian Processes for Machine Learning.
 */
import { minimise, type Objective } from './fit-minimise.js';
import { cholesky, covarianceFactor, type Hyperparameters } from './predictor.js';

/** Log-normal priors: median and deviation of the logarithm. Deviations of the log time, lengths in octaves. */
const PRIOR = {
  signalDeviation: { median: 0.2, spread: 1 },
  noiseDeviation: { median: 0.05, spread: 1 },
  lengthScale: { median: 3, spread: 1 },
} as const;
type Prior = (typeof PRIOR)[keyof typeof PRIOR];

/** Log hyperparameters stay within this of the logarithm of their prior's median. */
const MAX_LOG_SHIFT = 5;
const SQRT3 = Math.sqrt(3);

/** Points of a process: coordinates row by row (n × d), d axes. */
export interface Points {
  x: Float64Array;
  n: number;
  d: number;
}

/** Hyperparameters as the optimiser sees them: [log σ_f, log σ_n, log ℓ_1, ..., log ℓ_d]. */
const priorOf = (index: number): Prior =>
  index === 0 ? PRIOR.signalDeviation : index === 1 ? PRIOR.noiseDeviation : PRIOR.lengthScale;

export function toLog(hyper: Hyperparameters): Float64Array {
  return Float64Array.from([
    Math.log(hyper.signalVariance) / 2,
    Math.log(hyper.noiseVariance) / 2,
    ...hyper.lengthScales.map(Math.log),
  ]);
}

export function fromLog(log: Float64Array): Hyperparameters {
  const inRange = log.map((v, i) => {
    const centre = Math.log(priorOf(i).median);
    return Math.exp(Math.min(centre + MAX_LOG_SHIFT, Math.max(centre - MAX_LOG_SHIFT, v)));
  });
  return { signalVariance: inRange[0]! ** 2, noiseVariance: inRange[1]! ** 2, lengthScales: [...inRange.subarray(2)] };
}

/** The medians of the priors. */
export function priorHyperparameters(d: number): Hyperparameters {
  return fromLog(Float64Array.from({ length: d + 2 }, (_, i) => Math.log(priorOf(i).median)));
}

/** Inverse of a symmetric positive definite matrix (both triangles) from its Cholesky factor. */
export function inverseFromFactor(l: Float64Array, n: number): Float64Array {
  const m = new Float64Array(n * n); // L⁻¹, lower triangle
  for (let j = 0; j < n; j++) {
    m[j * n + j] = 1 / l[j * n + j]!;
    for (let i = j + 1; i < n; i++) {
      let sum = 0;
      for (let k = j; k < i; k++) sum -= l[i * n + k]! * m[k * n + j]!;
      m[i * n + j] = sum / l[i * n + i]!;
    }
  }
  const inverse = new Float64Array(n * n);
  for (let k = 0; k < n; k++) {
    for (let i = 0; i <= k; i++) {
      const mki = m[k * n + i]!;
      for (let j = 0; j <= i; j++) inverse[i * n + j] = inverse[i * n + j]! + mki * m[k * n + j]!;
    }
  }
  for (let i = 0; i < n; i++) for (let j = 0; j < i; j++) inverse[j * n + i] = inverse[i * n + j]!;
  return inverse;
}

/** Inverse covariance (nugget included) of points. */
export function precision({ x, n }: Points, hyper: Hyperparameters): Float64Array {
  return inverseFromFactor(covarianceFactor(x, n, hyper), n);
}

/** Negative log posterior density of log hyperparameters, up to a constant, with its gradient (eq. 5.8 and 5.9). */
export function negativeLogPosterior({ x, n, d }: Points, y: Float64Array): (log: Float64Array) => Objective {
  const pairs = (n * (n - 1)) / 2;
  /** Squared differences of every pair i > j along every axis. */
  const squares = new Float64Array(pairs * d);
  for (let i = 0, at = 0; i < n; i++)
    for (let j = 0; j < i; j++) for (let a = 0; a < d; a++) squares[at++] = (x[i * d + a]! - x[j * d + a]!) ** 2;
  const decay = new Float64Array(pairs);
  const k = new Float64Array(n * n);

  return (log) => {
    const hyper = fromLog(log);
    const inverseSquares = hyper.lengthScales.map((length) => 1 / length ** 2);
    for (let i = 0, pair = 0; i < n; i++) {
      for (let j = 0; j < i; j++, pair++) {
        let squared = 0;
        for (let a = 0; a < d; a++) squared += squares[pair * d + a]! * inverseSquares[a]!;
        const r = SQRT3 * Math.sqrt(squared);
        decay[pair] = hyper.signalVariance * Math.exp(-r);
        k[i * n + j] = (1 + r) * decay[pair]!;
      }
      k[i * n + i] = hyper.signalVariance + hyper.noiseVariance;
    }
    const factor = cholesky(k, n, 1e-12 * (hyper.signalVariance + hyper.noiseVariance));
    let value = 0;
    for (let i = 0; i < n; i++) value += Math.log(factor[i * n + i]!);
    const q = inverseFromFactor(factor, n);
    const alpha = multiply(q, y, n);
    let trace = 0;
    let fit = 0;
    for (let i = 0; i < n; i++) {
      fit += y[i]! * alpha[i]!;
      trace += q[i * n + i]! - alpha[i]! ** 2;
    }
    value += fit / 2;
    // With B = Q − ααᵀ: ∂/∂log σ_n = σ_n² tr B, ∂/∂log ℓ_a = ½ tr(B ∂K/∂log ℓ_a); K = S + σ_n² I gives ∂/∂log σ_f.
    const gradient = new Float64Array(log.length);
    gradient[1] = hyper.noiseVariance * trace;
    gradient[0] = n - fit - gradient[1];
    for (let i = 0, pair = 0; i < n; i++) {
      for (let j = 0; j < i; j++, pair++) {
        const weight = 3 * decay[pair]! * (q[i * n + j]! - alpha[i]! * alpha[j]!);
        for (let a = 0; a < d; a++)
          gradient[a + 2] = gradient[a + 2]! + weight * squares[pair * d + a]! * inverseSquares[a]!;
      }
    }
    for (let i = 0; i < log.length; i++) {
      const { median, spread } = priorOf(i);
      const z = (log[i]! - Math.log(median)) / spread;
      value += z ** 2 / 2;
      if (Math.abs(z * spread) >= MAX_LOG_SHIFT) gradient[i] = 0;
      gradient[i] = gradient[i]! + z / spread;
    }
    return { value, gradient };
  };
}

export interface MapEstimate {
  hyper: Hyperparameters;
  /** Of the log hyperparameters: with it a refit to nearly the same points takes a step or two. */
  inverseHessian?: Float64Array;
}

/** Descents that start at a fit to nearly the same points stop after this many steps. */
const WARM_ITERATIONS = 15;
/** The same, where the curvature is known too. */
const NEAR_ITERATIONS = 4;

/**
 * MAP hyperparameters: the better of two descents, from the prior's medians and from short and noisy, or one from
 * `warm`.
 */
export function fitHyperparameters(points: Points, y: Float64Array, warm?: MapEstimate): MapEstimate {
  const objective = negativeLogPosterior(points, y);
  const prior = toLog(priorHyperparameters(points.d));
  const shortAndNoisy = prior.map((v, i) => (i === 0 ? v : i === 1 ? v + 1.5 : v - 1.5));
  const found = warm
    ? [
        minimise(objective, toLog(warm.hyper), {
          maxIterations: warm.inverseHessian ? NEAR_ITERATIONS : WARM_ITERATIONS,
          inverseHessian: warm.inverseHessian,
        }),
      ]
    : [prior, shortAndNoisy].map((start) => minimise(objective, start));
  const best = found.reduce((least, one) => (one.value < least.value ? one : least));
  return { hyper: fromLog(best.x), inverseHessian: best.inverseHessian };
}

export function multiply(matrix: Float64Array, v: Float64Array, n: number): Float64Array {
  const out = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    let sum = 0;
    for (let j = 0; j < n; j++) sum += matrix[i * n + j]! * v[j]!;
    out[i] = sum;
  }
  return out;
}

/**
 * What the process with precision `q` mispredicts at point i when it is left out: y_i − μ_{−i} = (Q y)_i / Q_ii, with
 * deviation 1/√Q_ii (eq. 5.12). It holds for any y, hence also for residuals of a mean refitted without point i.
 */
export function looResidual(q: Float64Array, y: Float64Array, n: number, i: number): number {
  let sum = 0;
  for (let j = 0; j < n; j++) sum += q[i * n + j]! * y[j]!;
  return sum / q[i * n + i]!;
}

export function looDeviation(q: Float64Array, n: number, i: number): number {
  return 1 / Math.sqrt(q[i * n + i]!);
}
