/**
 * Orthonormal bases of the directions that hold most variance, by ml-matrix (MIT): Householder tridiagonalisation and
 * implicit QL. The right singular vectors of the centred data are the eigenvectors of its covariance.
 */
import { EigenvalueDecomposition, Matrix, QrDecomposition, WrapperMatrix1D } from 'ml-matrix';
import { sum } from '../numbers/statistics.js';
import type { Covariance } from './covariance.js';

/** Directions as columns: [width][rank], row-major, and the variance along each, largest first. */
export interface Basis {
  readonly width: number;
  readonly rank: number;
  readonly vectors: Float64Array;
  readonly variances: readonly number[];
}

/** Where the values are, the largest first. */
export const descending = (values: readonly number[]): number[] =>
  values.map((_, i) => i).sort((a, b) => values[b]! - values[a]!);

/** All eigenvalues of a covariance's leading block, largest first, and the eigenvectors of the first `rank`. */
export function principalBasis(covariance: Covariance, rank: number, size = covariance.width): Basis {
  const { realEigenvalues: ascending, eigenvectorMatrix: vectors } = new EigenvalueDecomposition(
    new WrapperMatrix1D(covariance.symmetric(size), { rows: size }),
    { assumeSymmetric: true },
  );
  const order = descending(ascending);
  const kept = order.slice(0, rank);
  const directions = new Float64Array(size * kept.length);
  kept.forEach((from, r) => {
    for (let i = 0; i < size; i++) directions[i * kept.length + r] = vectors.get(i, from);
  });
  return {
    width: size,
    rank: kept.length,
    vectors: directions,
    // Rounding makes tiny variances negative.
    variances: order.map((i) => Math.max(0, (ascending[i] as number) / covariance.count)),
  };
}

/** Random directions, orthonormal: the control of every fitted basis. @param normal draws of a normal distribution */
export function randomBasis(width: number, rank: number, normal: () => number): Basis {
  const q = new QrDecomposition(new Matrix(Array.from({ length: width }, () => Array.from({ length: rank }, normal))))
    .orthogonalMatrix;
  return {
    width,
    rank,
    vectors: Float64Array.from({ length: width * rank }, (_, at) => q.get(Math.floor(at / rank), at % rank)),
    variances: [],
  };
}

/**
 * exp(entropy of the variances' shares) over their number: 1 where all directions hold the same, 1/n where one holds
 * all (Roy and Vetterli 2007, normalised).
 */
export function effectiveRank(variances: readonly number[]): number {
  const total = sum(variances);
  if (total === 0) return 0;
  const entropy = variances.reduce((all, v) => (v > 0 ? all - (v / total) * Math.log(v / total) : all), 0);
  return Math.exp(entropy) / variances.length;
}
