/**
 * lla-sim as a library: the planner without the command line. No GPU, no native module.
 *
 * @example
 * import { plan } from 'lla-sim';
 * const report = await plan({ model: 'ouro-1.4b', vram: '141GB', context: 4096 });
 * console.log(report.plans[0].maxBatch.exact);
 */
export * from './library.js';
export { KERNELS } from '../kernels/registry.js';
export { CODECS } from './codecs/registry.js';
export { PRESETS } from './geometry/presets.js';
export { DEVICES } from './devices/catalogue.js';
export { CONTRADICTIONS } from './quality/contradictions.js';
export { UserError, EXIT } from './errors.js';
export { VERSION } from './version.js';
export type { Plan, PlanReport, PlanRequest, Candidate } from './plan/types.js';
export type { Scenario } from './schema/settings.js';
export type { Geometry } from './geometry/geometry.js';
export type { Codec, Path } from './codecs/codec.js';
export type { Interval, Evidence } from './cost/evidence.js';
export type { DeviceSpec } from './devices/catalogue.js';
export type { PaperReport } from './paper/types.js';
export type { Calibration } from './schema/calibration.js';
