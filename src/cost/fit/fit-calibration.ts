/** Fitting a whole calibration, and choosing its points while it is measured. */
import type { KernelName } from '../../../kernels/registry.js';
import type { Shape } from '../../../kernels/spec.js';
import type { Calibration, Sample } from '../../schema/calibration.js';
import { readCalibration } from '../../schema/drift.js';
import { activeSelector, fitPredictor } from './fit.js';

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

/** Index of the candidate to measure next, by what the samples so far leave least certain. Keeps a model a variant. */
export function nextPoints(): (
  kernel: KernelName,
  variant: string,
  samples: readonly Sample[],
  candidates: readonly Shape[],
) => number {
  const selectors = new Map<string, ReturnType<typeof activeSelector>>();
  return (kernel, variant, samples, candidates) => {
    const key = `${kernel}/${variant}`;
    const selector = selectors.get(key) ?? activeSelector(kernel, variant);
    selectors.set(key, selector);
    return selector(samples, candidates);
  };
}
