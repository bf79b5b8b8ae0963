/**
 * Fits the predictor of one kernel and variant to its measured samples: a physical mean, a Gaussian process on the log
 * residual, and 90 % intervals by conformal leave-one-out. Used when calibrating; predicting needs predictor.ts alone.
 */
import type { Calibration, Predictor, Sample } from '../../schema/calibration.js';
import { readCalibration } from '../../schema/drift.js';
import { CONSTANTS } from '../constants.js';
import type { Hyperparameters } from '../covariance.js';
import { TERMS_VERSION, type KernelName } from '../../../kernels/registry.js';
import { conformalQuantile } from '../conformal.js';
import { kappaOfHidden, looCoverage, modelOf, quantilesOf } from './fit-conformal.js';
import { fitBest, fitWith, gpPoints, varyingAxes } from './fit-core.js';
import { dataOf } from './fit-mean.js';
import { measuredPoints, type Point } from '../predictor.js';
import { sha256 } from '../../numbers/sha256.js';
import { median } from '../../numbers/statistics.js';

/** A residual beyond this many deviations (1.48 · MAD, the deviation of normal residuals) is an outlier, ... */
const OUTLIER_DEVIATIONS = CONSTANTS.outlierDeviations.value;
const MAD_TO_DEVIATION = 1.48;
/** ... unless it is smaller than this, log units. */
const SMALLEST_OUTLIER = CONSTANTS.outlierLeast.value;
/** More than this share of outliers is no longer noise but a kernel that the terms do not describe. */
const MAX_OUTLIER_SHARE = CONSTANTS.outlierShare.value;
/**
 * SHA-256 (hex) over kernel, variant and the (shape, seconds, drift where there is one) of the variant's samples: which
 * data a predictor belongs to. Neither the order of samples nor the order of shape fields enters; the order of
 * repetitions does.
 */
export function digestSamples(kernel: KernelName, variant: string, samples: readonly Sample[]): string {
  const lines = samples
    .filter((sample) => sample.variant === variant)
    .map(({ shape, seconds, drift }) =>
      JSON.stringify([Object.entries(shape).sort(([a], [b]) => (a < b ? -1 : 1)), seconds, ...(drift ? [drift] : [])]),
    )
    .sort();
  return sha256(JSON.stringify([kernel, variant, lines]));
}

/**
 * Fits to the samples of `variant` (others are ignored). Deterministic. Re-measure `outliers` first: the fit is robust
 * in its mean only. With fewer than 10 distinct shapes the intervals are wide by rule; one shape alone has no
 * leave-one-out residual, so its errors are those of the interval and its coverage is 0: nothing was tested.
 */
export function fitPredictor(kernel: KernelName, variant: string, samples: readonly Sample[]): Predictor {
  const points = measuredPoints(kernel, variant, samples);
  if (points.length === 0)
    throw new Error(
      `cannot fit ${kernel} (${variant}): none of the ${samples.length} samples is of this variant; measure it first`,
    );
  const axes = varyingAxes(kernel, points);
  const fit = fitBest(kernel, variant, points, axes);
  const { looResiduals, looDeviations } = fit;
  const quantiles = quantilesOf(looResiduals, looDeviations);
  const kappa = kappaOfHidden(kernel, variant, points, fit, quantiles);
  const errors =
    looResiduals.length > 0 ? looResiduals.map((r) => Math.abs(Math.expm1(-r))) : [Math.expm1(quantiles.absolute)];
  const model = modelOf(fit, axes, quantiles, kappa);
  return {
    ...model,
    modelVersion: TERMS_VERSION,
    lengthScales: [...model.lengthScales],
    looMedianError: median(errors),
    looP90Error: conformalQuantile(errors),
    looCoverage: looCoverage(looResiduals, looDeviations),
    samplesDigest: digestSamples(kernel, variant, samples),
  };
}

/** Fits a predictor for every kernel and variant that has samples; names each before its turn, which takes a moment. */
export function* fitting(calibration: Calibration): Generator<{ kernel: KernelName; variant: string }> {
  // Predictors are those of the stored kernels.
  for (const k of readCalibration(calibration).kernels) {
    const kernel = k.kernel as KernelName;
    for (const variant of new Set(k.samples.map((s) => s.variant))) {
      yield { kernel, variant };
      k.predictors[variant] = fitPredictor(kernel, variant, k.samples);
    }
  }
}

/**
 * Indices of samples to re-measure: |leave-one-out residual| > max(4 · 1.48 · MAD, log 1.5). The worst point is taken
 * out before the next fit, since one bad time spoils its neighbours' residuals and hides behind the nugget it causes;
 * points that the final fit explains after all do not come back, which costs a repetition at most.
 */
export function outliers(kernel: KernelName, variant: string, samples: readonly Sample[]): number[] {
  let points = measuredPoints(kernel, variant, samples);
  if (points.length < 3) return [];
  const most = Math.max(1, Math.floor(MAX_OUTLIER_SHARE * points.length));
  const found: Point[] = [];
  let axes = varyingAxes(kernel, points);
  const { mean, looResiduals, hyper } = fitBest(kernel, variant, points, axes);
  let residuals = looResiduals;
  let warm: Hyperparameters = hyper;
  while (found.length < most && points.length >= 3) {
    const sizes = residuals.map(Math.abs);
    const worst = sizes.reduce((best, size, i) => (size > sizes[best]! ? i : best), 0);
    const typical = median(sizes);
    if (sizes[worst]! <= Math.max(OUTLIER_DEVIATIONS * MAD_TO_DEVIATION * typical, SMALLEST_OUTLIER)) break;
    found.push(points[worst]!);
    points = points.filter((_, i) => i !== worst);
    const before = axes;
    axes = varyingAxes(kernel, points);
    warm = { ...warm, lengthScales: axes.map((axis) => warm.lengthScales[before.indexOf(axis)]!) };
    ({ looResiduals: residuals, hyper: warm } = fitWith(
      dataOf(kernel, variant, points),
      gpPoints(points, axes),
      mean.termIndices,
      warm,
    ));
  }
  return found.flatMap((point) => point.sampleIndices).sort((a, b) => a - b);
}
