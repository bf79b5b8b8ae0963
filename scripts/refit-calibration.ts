/**
 * Fits the predictors of calibration files again, in place: after a change of kernels' terms. Nothing is measured, and
 * what is stale stays so. Usage: refit-calibration FILE …
 */
import { readFileSync } from 'node:fs';
import { writeCalibration } from '../src/bench/calibrate/save.js';
import { fitting } from '../src/cost/fit/fit.js';
import { calibrationSchema } from '../src/schema/calibration.js';

for (const path of process.argv.slice(2)) {
  const calibration = calibrationSchema.parse(JSON.parse(readFileSync(path, 'utf8')));
  for (const { kernel, variant } of fitting(calibration)) console.log(`${path}: ${kernel} ${variant}`);
  writeCalibration(path, calibration);
}
