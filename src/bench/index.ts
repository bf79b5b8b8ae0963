/** Microbenchmarks and calibration. Nothing in the planner imports it. */
export { calibrate, type CalibrateOptions, type CalibrationProgress } from './calibrate.js';
export { obstacle, type MeasureRules } from './measure.js';
export { measureCeilings, measureOverheads } from './ceilings.js';
export { saveTo, writeCalibration } from './save.js';
