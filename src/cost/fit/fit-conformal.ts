/**
 * Intervals from leave-one-out residuals: the jackknife around the fit to all points with conformal quantiles, of an
 * absolute and a normalised score, and the widening outside the measured range. Unlike the jackknife+ of Barber,
 * Candès, Ramdas & Tibshirani (2021) it guarantees no coverage; `validate` measures it.
 */
import { CONSTANTS } from '../constants.js';
import type { KernelName } from '../../../kernels/registry.js';
import { fitWith, gpPoints, varyingAxes, type Fit } from './fit-core.js';
import { dataOf } from './fit-mean.js';
import { conformalQuantile, FEWEST_FOR_QUANTILE, kappaOf, lackPerOctave } from '../conformal.js';
import { conformalHalfWidth, coordinate, predictFrom, type Model, type Point } from '../predictor.js';

/** Fewer residuals than make a quantile: twice the largest stands in, no less than this. */
const FLOOR_OF_FEW = CONSTANTS.floorOfFew.value;
/** Extrapolation is tested from no fewer points than this, and no less than this share of all. */
const FEWEST_REMAINING = CONSTANTS.remainingPoints.value;
const SHARE_REMAINING = CONSTANTS.remainingShare.value;

export interface Quantiles {
  absolute: number;
  normalised: number;
}

/** q_J and q_N: quantiles of |R| and |R| / sd. */
export function quantilesOf(residuals: readonly number[], deviations: readonly number[]): Quantiles {
  const absolute = residuals.map(Math.abs);
  const normalised = absolute.map((r, i) => r / deviations[i]!);
  if (residuals.length >= FEWEST_FOR_QUANTILE)
    return { absolute: conformalQuantile(absolute), normalised: conformalQuantile(normalised) };
  return { absolute: Math.max(FLOOR_OF_FEW, 2 * Math.max(0, ...absolute)), normalised: 2 * Math.max(0, ...normalised) };
}

/** Share of the residuals inside the interval made of all the others; 0 when there are none. */
export function looCoverage(residuals: readonly number[], deviations: readonly number[]): number {
  const others = (list: readonly number[], i: number) => list.filter((_, j) => j !== i);
  const inside = residuals.filter((r, i) => {
    const q = quantilesOf(others(residuals, i), others(deviations, i));
    return Math.abs(r) <= conformalHalfWidth(q.absolute, q.normalised, deviations[i]!);
  });
  return residuals.length > 0 ? inside.length / residuals.length : 0;
}

/**
 * κ: what the half-width lacked, per octave, when the top 1, 2 and 3 octaves of each axis were hidden and predicted
 * from the rest (same terms, mean and hyperparameters refitted). The 90 % quantile over all hidden points of all
 * hidings.
 */
export function kappaOfHidden(
  kernel: KernelName,
  variant: string,
  points: readonly Point[],
  fit: Fit,
  quantiles: Quantiles,
): number {
  const lacks: number[] = [];
  for (const axis of varyingAxes(kernel, points)) {
    const values = points.map((point) => coordinate(point.shape[axis]!));
    const top = Math.max(...values);
    let hiddenBefore = 0;
    for (const octaves of [1, 2, 3]) {
      const isHidden = (i: number) => values[i]! > top - octaves;
      const remaining = points.filter((_, i) => !isHidden(i));
      const hidden = points.filter((_, i) => isHidden(i));
      if (
        hidden.length === hiddenBefore ||
        remaining.length < Math.max(FEWEST_REMAINING, SHARE_REMAINING * points.length)
      )
        continue;
      hiddenBefore = hidden.length;
      lacks.push(...lacksOf(kernel, variant, remaining, hidden, fit, quantiles));
    }
  }
  return kappaOf(lacks);
}

function lacksOf(
  kernel: KernelName,
  variant: string,
  seen: Point[],
  hidden: Point[],
  fit: Fit,
  quantiles: Quantiles,
): number[] {
  const axes = varyingAxes(kernel, seen);
  const axesOfFit = varyingAxes(kernel, [...seen, ...hidden]);
  const warm = { ...fit.hyper, lengthScales: axes.map((axis) => fit.hyper.lengthScales[axesOfFit.indexOf(axis)]!) };
  const refit = fitWith(dataOf(kernel, variant, seen), gpPoints(seen, axes), fit.mean.termIndices, warm);
  const predict = predictFrom(kernel, variant, seen, modelOf(refit, axes, quantiles, 0));
  return hidden.map(({ shape, seconds }) => {
    const { seconds: predicted, halfWidthLog, octavesOutside } = predict(shape);
    return lackPerOctave(Math.log(seconds / predicted), halfWidthLog, octavesOutside);
  });
}

/** The fields that predicting needs, without the terms that came out as zero. */
export function modelOf({ mean, hyper }: Fit, axes: string[], quantiles: Quantiles, kappaPerOctave: number): Model {
  const kept = mean.termIndices
    .map((term, j) => ({ term, coefficient: mean.theta[j]! }))
    .filter(({ coefficient }) => coefficient > 0);
  return {
    termIndices: kept.map(({ term }) => term),
    theta: kept.map(({ coefficient }) => coefficient),
    axes,
    lengthScales: hyper.lengthScales,
    signalVariance: hyper.signalVariance,
    noiseVariance: hyper.noiseVariance,
    offset: mean.offset,
    quantileAbsolute: quantiles.absolute,
    quantileNormalised: quantiles.normalised,
    kappaPerOctave,
  };
}
