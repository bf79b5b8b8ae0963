/**
 * Interpolation between scattered points: ordinary kriging from the nearest ones (a Gaussian process whose mean is
 * unknown; Cressie, Statistics for Spatial Data, 1993, ch. 3), Matérn-3/2 with one length scale a coordinate.
 */
import { CONSTANTS } from '../../cost/constants.js';
import { Process, type Hyperparameters } from '../../cost/process.js';
import { Neighbours } from './neighbours.js';

const NEIGHBOURS = CONSTANTS.neighbours.value;
/** Targets that scales are chosen by. */
const TRIALS = 250;
/** A stray target tells nothing about scales: no error counts more than this. */
const MOST_ERROR = 0.5;

/** The search for scales starts here, octaves. */
const FIRST_LENGTH = 2;
/** Length scales here are those of exp(−r): Matérn-3/2 has √3 of them in one of its own. */
const MATERN_LENGTH = Math.sqrt(3);

/** A level that nothing is known of, over the field's variance: its points alone tell it. */
const UNKNOWN = 1e4;
const ONE = [1];

export interface Scales {
  /** Octaves over which values stay alike, one a coordinate. */
  readonly lengths: readonly number[];
  /** Variance of a point's own noise over that of the field. */
  readonly nugget: number;
}

export class Field {
  readonly #neighbours: Neighbours;
  readonly #hyper: Hyperparameters;

  /**
   * @param coordinates one list of octaves a point
   * @param values      one a point
   */
  constructor(
    coordinates: readonly (readonly number[])[],
    readonly values: Float64Array,
    readonly scales: Scales,
  ) {
    this.#neighbours = new Neighbours(coordinates.map((at) => this.#scaled(at)));
    const { nugget: noiseVariance } = scales;
    this.#hyper = { effectVariances: [UNKNOWN, 0], signalVariance: 1, lengthScale: MATERN_LENGTH, noiseVariance };
  }

  #scaled(at: readonly number[]): Float64Array {
    return Float64Array.from(at, (value, j) => value / this.scales.lengths[j]!);
  }

  /** The value expected at `at`, from the nearest points that are not skipped. */
  valueAt(at: readonly number[], skip?: (index: number) => boolean): number {
    const target = this.#scaled(at);
    const near = this.#neighbours.nearest(target, NEIGHBOURS, skip);
    const points = near.map((index) => ({ x: this.#neighbours.points[index]!, features: ONE }));
    const values = near.map((index) => this.values[index]!);
    return new Process(points, values, this.#hyper).at({ x: target, features: ONE }).mean;
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
  let best = [...Array<number>(d).fill(Math.log(FIRST_LENGTH)), Math.log(0.02)];
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
