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
export type { Plan, PlanReport, PlanRequest, Candidate, DeviceChoice } from './plan/types.js';
export type { Targets, MinimumTarget, DecodeFigures, OperatingPoint } from './plan/types.js';
export type { Answer } from './plan/answer-types.js';
export type { Scenario } from './schema/settings.js';
export type { Server, Workload } from './schema/serving.js';
export type { Geometry } from './geometry/geometry.js';
export type { Codec, CodecKind, Path } from './codecs/codec.js';
export type { Budget, Eviction, HeavyHitters, Streaming } from './eviction/policy.js';
export type { PathClass } from './quality/figure.js';
export type { Op } from './schedule/schedule.js';
export type { PricedOp } from './schedule/configuration.js';
export type { KernelName } from '../kernels/registry.js';
export type { Shape, Storage } from '../kernels/spec.js';
export type { Interval, Evidence } from './cost/evidence.js';
export type { DeviceSpec } from './devices/catalogue.js';
export type { PaperReport } from './paper/types.js';
export type { Calibration } from './schema/calibration.js';
