/** Which times of a calibration are not used, since what they are of has changed. */
import { TERMS_VERSION, type KernelName } from '../../../kernels/registry.js';
import { kernelHash } from '../../../kernels/source.js';
import type { Calibration } from '../../schema/calibration.js';

/** Kernels whose source or physical terms have changed since the calibration was made. */
export const staleKernels = (calibration: Calibration): string[] =>
  calibration.kernels
    .filter(
      (k) =>
        k.sourceHash !== kernelHash(k.kernel as KernelName) ||
        Object.values(k.predictors).some((p) => p.modelVersion !== TERMS_VERSION),
    )
    .map((k) => k.kernel);
