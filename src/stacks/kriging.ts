/**
 * Interpolation between scattered points: ordinary kriging from the nearest ones (a Gaussian process whose mean is
 * unknown; Cressie, Statistics for Spatial Data, 1993, ch. 3), Matérn-3/2 with one length scale a coordinate.
 */
import { Neighbours } from './neighbours.js';

const NEIGHBOURS = 24;
/** Targets that scales are chosen by. */
const TRIALS = 250;
/** A stray target tells nothing about scales: no error counts more than this. */
const MOST_ERROR = 0.5;

export interface Scales {
  /** Octaves over which values stay alike, one a coordinate. */
  readonly lengths: readonly number[];
  /** Variance of a point's own noise over that of the field. */
  readonly nugget: number;
}

export class Field {
  readonly #neighbours: Neighbours;

  /**
   * @param coordinates one list of octaves a point
   * @param values      one a point
   */
  constructor(
    readonly coordinates: readonly (readonly number[])[],
    readonly values: Float64Array,
    readonly scales: Scales,
  ) {
    const d = scales.lengths.length;
    const x = new Float64Array(coordinates.length * d);
    coordinates.forEach((row, i) => row.forEach((value, j) => (x[i * d + j] = value / scales.lengths[j]!)));
    this.#neighbours = new Neighbours(x, d);
  }

  /** The value expected at `at`, from the nearest points that are not skipped. */
  valueAt(at: readonly number[], skip?: (index: number) => boolean): number {
    const { x, d } = this.#neighbours;
    const target = Float64Array.from(at, (value, j) => value / this.scales.lengths[j]!);
    const near = this.#neighbours.nearest(target, NEIGHBOURS, skip);
    const k = near.length;
    if (k === 0) return 0;
    const covariance = (a: Float64Array, from: number, b: Float64Array, to: number): number => {
      let square = 0;
      for (let j = 0; j < d; j++) square += (a[from + j]! - b[to + j]!) ** 2;
      const r = Math.sqrt(square);
      return (1 + r) * Math.exp(-r);
    };
    // Cholesky of the neighbours' covariances, then three right sides: covariances to the target, ones, values.
    const l = new Float64Array(k * k);
    const right = [new Float64Array(k), new Float64Array(k), new Float64Array(k)] as const;
    for (let i = 0; i < k; i++) {
      right[0][i] = covariance(x, near[i]! * d, target, 0);
      right[1][i] = 1;
      right[2][i] = this.values[near[i]!]!;
      for (let j = 0; j <= i; j++) {
        let sum = i === j ? 1 + this.scales.nugget : covariance(x, near[i]! * d, x, near[j]! * d);
        for (let m = 0; m < j; m++) sum -= l[i * k + m]! * l[j * k + m]!;
        l[i * k + j] = i === j ? Math.sqrt(Math.max(sum, 1e-12)) : sum / l[j * k + j]!;
      }
      for (const column of right) {
        for (let m = 0; m < i; m++) column[i] = column[i]! - l[i * k + m]! * column[m]!;
        column[i] = column[i]! / l[i * k + i]!;
      }
    }
    const dot = (a: Float64Array, b: Float64Array): number => a.reduce((sum, value, i) => sum + value * b[i]!, 0);
    const [c, one, y] = right;
    const mean = dot(one, y) / dot(one, one);
    return mean + dot(c, y) - mean * dot(c, one);
  }
}

/** Length scales and nugget with the least mean leave-one-out error, by coordinate search. */
export function fitScales(coordinates: readonly (readonly number[])[], values: Float64Array): Scales {
  const d = coordinates[0]!.length;
  const n = coordinates.length;
  const trials = Array.from({ length: Math.min(n, TRIALS) }, (_, i) =>
    Math.floor(((i + 0.5) * n) / Math.min(n, TRIALS)),
  );
  const toScales = (h: readonly number[]): Scales => ({
    lengths: h.slice(0, d).map(Math.exp),
    nugget: Math.exp(h[d]!),
  });
  const cost = (h: readonly number[]): number => {
    const field = new Field(coordinates, values, toScales(h));
    return trials.reduce((sum, i) => {
      const error = Math.abs(field.valueAt(coordinates[i]!, (other) => other === i) - values[i]!);
      return sum + Math.min(error, MOST_ERROR);
    }, 0);
  };
  let best = [...Array<number>(d).fill(Math.log(2)), Math.log(0.02)];
  let least = cost(best);
  for (const step of [1.2, 1.2, 0.6, 0.6])
    for (let i = 0; i <= d; i++)
      for (const sign of [1, -1]) {
        const next = best.map((value, j) => (j === i ? value + sign * step * (i === d ? 2 : 1) : value));
        const value = cost(next);
        if (value < least) [best, least] = [next, value];
      }
  return toScales(best);
}
