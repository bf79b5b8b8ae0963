/**
 * Fits the predictor of one kernel and variant to its measured samples: a physical mean, a Gaussian process on the log
 * residual, and 90 % intervals by conformal leave-one-out. Used when calibrating; predicting needs predictor.ts alone.
 */
import type { Predictor, Sample } from '../../schema/calibration.js';
import { TERMS_VERSION, type KernelName } from '../../../kernels/registry.js';
import { conformalQuantile } from '../conformal.js';
import { kappaOfHidden, looCoverage, modelOf, quantilesOf } from './fit-conformal.js';
import { fitBest, varyingAxes } from './fit-core.js';
import { measuredPoints } from '../predictor.js';
import { sha256 } from '../../sha256.js';
import { median } from '../../statistics.js';

export { activeSelector, mostInformative, outliers } from './fit-active.js';

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
