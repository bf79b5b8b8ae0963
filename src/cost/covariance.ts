/**
 * The smooth residual: a Gaussian process over coordinates in octaves, Matérn-3/2 with one length scale an axis.
 * Equation numbers: Rasmussen & Williams, Gaussian Processes for Machine Learning.
 */
import { cholesky, dot, solve, solveLower } from './linear.js';

const SQRT3 = Math.sqrt(3);
/** Pivots below this share of the variance are rounding. */
const PIVOT_FLOOR = 1e-12;

/** Matérn-3/2 correlation at a squared scaled distance (eq. 4.17). */
export function matern32(squaredDistance: number): number {
  const r = SQRT3 * Math.sqrt(squaredDistance);
  return (1 + r) * Math.exp(-r);
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
  const { lengthScales, signalVariance, noiseVariance } = hyper;
  const d = lengthScales.length;
  const k = new Float64Array(n * n);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < i; j++) {
      let squared = 0;
      for (let a = 0; a < d; a++) squared += ((x[i * d + a]! - x[j * d + a]!) / lengthScales[a]!) ** 2;
      k[i * n + j] = signalVariance * matern32(squared);
    }
    k[i * n + i] = signalVariance + noiseVariance;
  }
  return cholesky(k, n, PIVOT_FLOOR * (signalVariance + noiseVariance));
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

  /**
   * @param x coordinates of the points, row by row
   * @param y log residuals there
   */
  constructor(
    private readonly x: Float64Array,
    y: Float64Array,
    private readonly hyper: Hyperparameters,
  ) {
    this.n = y.length;
    this.factor = covarianceFactor(x, this.n, hyper);
    this.alpha = solve(this.factor, this.n, y.slice());
    this.k = new Float64Array(this.n);
  }

  /** Sets the fields to the posterior at these coordinates (eq. 2.25 and 2.26). */
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
    const variance = signalVariance + noiseVariance - dot(k, k);
    this.deviation = Math.sqrt(Math.max(variance, noiseVariance));
    return this;
  }
}
