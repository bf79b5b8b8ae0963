/** Microbenchmarks and calibration, as Node runs them. Nothing in the planner imports it. */
import type { Calibration } from '../schema/calibration.js';
import { calibrate as measure, type CalibrateOptions } from './calibrate/calibrate.js';
import { describeHost } from './host.js';

/** Calibrates a device of this machine (calibrate.ts). */
export const calibrate = (options: Omit<CalibrateOptions, 'host'>): Promise<Calibration> =>
  measure({ ...options, host: describeHost() });

export type { CalibrateOptions, CalibrationProgress, Compiled } from './calibrate/calibrate.js';
export { measureOverheads } from './ceilings.js';
export { saveTo, writeCalibration } from './calibrate/save.js';
