/**
 * W_down, W_up and mu of a latent from the covariance of the vectors that it stands for (paper, Sec. "Initialization
 * and conversion"): the basis of the most variance, or a control.
 */
import { Matrix, WrapperMatrix1D } from 'ml-matrix';
import type { Initialisation } from '../decoder/index.js';
import type { LatentGroups } from '../decoder/tensors.js';
import { principalBasis, randomBasis } from './basis.js';
import { Covariance, type Moments } from './covariance.js';
import { Sketch } from './sketch.js';

/** Matrices of one latent: [stacked width][rank], and mu. */
export interface LatentWeights {
  readonly down: Float64Array;
  readonly up: Float64Array;
  readonly mean: Float64Array;
}

/** With the share of the variance that they keep. */
export interface FittedLatent extends LatentWeights {
  /** At least this, where the covariance is a sketch. */
  readonly kept: number;
  /** Of a sketch: the share that the best directions keep beyond that, at most. */
  readonly below?: number;
}

/**
 * @param own moments of the stacked vectors; a sketch for directions of the most variance only
 * @param firstLoop covariance whose leading components are the first loop's, of the same heads
 * @param normal draws of a normal distribution, for random directions
 */
export function latentWeights(
  initialisation: Initialisation,
  groups: LatentGroups,
  rank: number,
  own: Moments,
  firstLoop: Moments,
  normal: () => number,
): FittedLatent {
  const mean = own.mean.slice();
  if (own instanceof Sketch) {
    if (initialisation !== 'svd') throw new RangeError('a sketch has directions of the most variance only');
    const { vectors, kept, below } = own.basis(rank);
    return { down: vectors, up: vectors, mean, kept, below };
  }
  if (!(own instanceof Covariance && firstLoop instanceof Covariance)) throw new RangeError('no covariance');
  const weights = { mean, ...exactDirections(initialisation, groups, rank, own, firstLoop, normal) };
  return { ...weights, kept: energyKept(own, weights) };
}

function exactDirections(
  initialisation: Initialisation,
  groups: LatentGroups,
  rank: number,
  own: Covariance,
  firstLoop: Covariance,
  normal: () => number,
): Pick<LatentWeights, 'down' | 'up'> {
  if (initialisation === 'svd') {
    const { vectors } = principalBasis(own, rank);
    return { down: vectors, up: vectors };
  }
  if (initialisation === 'random') {
    const { vectors } = randomBasis(groups.width, rank, normal);
    return { down: vectors, up: vectors };
  }
  // The first loop's directions serve every loop: the latent is the mean of the loops' coordinates.
  const size = groups.width / groups.loops;
  const basis = principalBasis(firstLoop, Math.min(rank, size), size);
  const down = new Float64Array(groups.width * rank);
  const up = new Float64Array(groups.width * rank);
  for (let i = 0; i < groups.width; i++)
    for (let j = 0; j < basis.rank; j++) {
      const value = basis.vectors[(i % size) * basis.rank + j] as number;
      down[i * rank + j] = value / groups.loops;
      up[i * rank + j] = value;
    }
  return { down, up };
}

/**
 * Share of the variance that a latent keeps: 1 − E‖x − x̂‖² / E‖x − mu‖², exactly, from the covariance C:
 * E‖x − x̂‖² = tr C − 2 tr(Dᵀ C U) + tr(UᵀU Dᵀ C D). Below 0 where it is worse than the mean alone.
 */
export function energyKept(covariance: Covariance, { down, up }: Pick<LatentWeights, 'down' | 'up'>): number {
  const total = covariance.trace;
  if (total === 0) return 1;
  const [d, u] = [down, up].map((values) => new WrapperMatrix1D(values, { rows: covariance.width })) as [
    Matrix,
    Matrix,
  ];
  const c = Matrix.div(new WrapperMatrix1D(covariance.symmetric(), { rows: covariance.width }), covariance.count);
  const product = c.mmul(d);
  const inner = (a: Matrix, b: Matrix): number => Matrix.mul(a, b).sum();
  const error = total - 2 * inner(u, product) + inner(u.transpose().mmul(u), d.transpose().mmul(product));
  return 1 - error / total;
}
