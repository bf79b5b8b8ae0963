/**
 * What is left of log time beyond a law: effects that are linear in features, a smooth part over octaves of the shape,
 * and noise, all normal. Equation numbers: Rasmussen & Williams, Gaussian Processes for Machine Learning.
 */
import { cholesky, dot, solve, solveLower } from './linear.js';

const SQRT3 = Math.sqrt(3);
/** Pivots below this share of the variance are rounding. */
const PIVOT_FLOOR = 1e-12;

/** Matérn-3/2 correlation at a squared scaled distance (eq. 4.17). */
function matern32(squaredDistance: number): number {
  const r = SQRT3 * Math.sqrt(squaredDistance);
  return (1 + r) * Math.exp(-r);
}

export interface Hyperparameters {
  /** Variance of the coefficient of the first feature, which is what all points share, and of each of the others. */
  readonly effectVariances: readonly [number, number];
  /** Of the smooth part. */
  readonly signalVariance: number;
  /** Octaves. */
  readonly lengthScale: number;
  /** Of a point by itself. */
  readonly noiseVariance: number;
}

/** Where a call lies: coordinates in octaves, and features. */
export interface Place {
  readonly x: ArrayLike<number>;
  readonly features: ArrayLike<number>;
}

/** A process given some of its values. `at` tells of one place after another in the same fields. */
export class Process {
  mean = 0;
  /** Of a new measurement. */
  deviation = 0;
  /** Index of the point that the place is; -1 for none. */
  point = -1;
  readonly #n: number;
  readonly #factor: Float64Array;
  readonly #alpha: Float64Array;
  readonly #k: Float64Array;

  /**
   * @param y values at the points
   * @param own variance that a point has to itself, part of the noise: a new measurement of it shares that
   */
  constructor(
    readonly points: readonly Place[],
    y: ArrayLike<number>,
    readonly hyper: Hyperparameters,
    readonly own = 0,
  ) {
    const n = (this.#n = points.length);
    const k = new Float64Array(n * n);
    for (let i = 0; i < n; i++)
      for (let j = 0; j <= i; j++)
        k[i * n + j] = this.#covariance(points[i]!, points[j]!) + (i === j ? hyper.noiseVariance : 0);
    this.#factor = cholesky(k, n, PIVOT_FLOOR * (hyper.signalVariance + hyper.noiseVariance));
    this.#alpha = solve(this.#factor, n, Float64Array.from(y));
    this.#k = new Float64Array(n);
  }

  /** Before data. */
  #covariance({ x, features }: Place, other: Place): number {
    const { signalVariance, lengthScale } = this.hyper;
    let squared = 0;
    for (let a = 0; a < x.length; a++) squared += (x[a]! - other.x[a]!) ** 2;
    return signalVariance * matern32(squared / lengthScale ** 2) + this.#linear(features, other.features);
  }

  #linear(a: ArrayLike<number>, b: ArrayLike<number>): number {
    const [first, others] = this.hyper.effectVariances;
    let sum = first * a[0]! * b[0]!;
    for (let i = 1; i < a.length; i++) sum += others * a[i]! * b[i]!;
    return sum;
  }

  /** Sets the fields to the posterior at a place (eq. 2.25 and 2.26). */
  at(place: Place): this {
    const k = this.#k;
    const { x, features } = place;
    const { signalVariance, noiseVariance } = this.hyper;
    this.mean = 0;
    this.point = -1;
    for (let i = 0; i < this.#n; i++) {
      const point = this.points[i]!;
      k[i] = this.#covariance(place, point);
      let same = true;
      for (let a = 0; a < x.length && same; a++) same = x[a] === point.x[a];
      if (same) {
        this.point = i;
        k[i]! += this.own;
      }
      this.mean += k[i]! * this.#alpha[i]!;
    }
    solveLower(this.#factor, this.#n, k);
    const variance = signalVariance + this.#linear(features, features) + noiseVariance - dot(k, k);
    this.deviation = Math.sqrt(Math.max(variance, noiseVariance - this.own));
    return this;
  }

  /** Covariances of places, given the points (eq. 2.26 without noise), row-major. */
  covarianceOf(places: readonly Place[]): Float64Array {
    const m = places.length;
    const explained = places.map((place) =>
      solveLower(
        this.#factor,
        this.#n,
        Float64Array.from(this.points, (point) => this.#covariance(place, point)),
      ),
    );
    const found = new Float64Array(m * m);
    for (let a = 0; a < m; a++)
      for (let b = 0; b <= a; b++)
        found[a * m + b] = found[b * m + a] =
          this.#covariance(places[a]!, places[b]!) - dot(explained[a]!, explained[b]!);
    return found;
  }

  /** What it mispredicts at each point that is left out (eq. 5.12): (Q y)_i / Q_ii with the precision Q. */
  leftOut(): number[] {
    return Array.from(this.#alpha, (each, i) => {
      const column = solveLower(this.#factor, this.#n, new Float64Array(this.#n).fill(1, i, i + 1));
      return each / dot(column, column);
    });
  }

  /** Negative logarithm of the density of these values, up to a constant (eq. 5.8). */
  surprise(y: ArrayLike<number>): number {
    let value = 0;
    for (let i = 0; i < this.#n; i++) value += (y[i]! * this.#alpha[i]!) / 2 + Math.log(this.#factor[i * this.#n + i]!);
    return value;
  }
}
