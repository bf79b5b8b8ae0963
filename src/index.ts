/**
 * lla-sim as a library: the planner without the command line. No GPU, no native module.
 *
 * @example
 * import { plan } from 'lla-sim';
 * const report = await plan({ model: 'ouro-1.4b', vram: '141GB', context: 4096 });
 * console.log(report.plans[0].maxBatch.exact);
 */
export { ask as plan } from './plan/ask.js';
export { makePlan } from './plan/plan.js';
export { readQuestion } from './plan/request.js';
export { listCandidates } from './plan/candidates.js';
export { planTable } from './report/plan-table.js';
export { planCsv, planMarkdown } from './report/plan-csv.js';
export { memoryModel, maxBatch, onGrid, prefillPeaks, totalBytes } from './cost/memory.js';
export { priceStep, pricePrompt } from './cost/latency.js';
export { datasheetPricer, calibrationPricer } from './cost/pricers.js';
export { schedule, forEachOp } from './schedule/schedule.js';
export { KERNELS, workOf } from './kernels/registry.js';
export { CODECS, layoutOf, coreRatio, codecLabel } from './codecs/registry.js';
export { bytesPerToken, slotsOf } from './codecs/layout.js';
export { PRESETS, findPreset } from './geometry/presets.js';
export { parameterCount, cacheSlots, blocksOf } from './geometry/geometry.js';
export { DEVICES } from './devices/catalogue.js';
export { findDevice, devicesByVram } from './devices/find.js';
export { qualityOf, reliableRetrieval } from './quality/quality.js';
export { CONTRADICTIONS } from './quality/contradictions.js';
export { paperReport } from './paper/report.js';
export { PaperModel, datasheetDevice } from './paper/model.js';
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
