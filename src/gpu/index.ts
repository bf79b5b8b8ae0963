/** The GPU side's public face in Node. Nothing in the planner imports it, nor what a page may load. */
export { openDevice } from './dawn.js';
export { Device } from './device.js';
export type { Clock, RunTime } from './platform.js';
export { partOf, type BoundStep, type Buffer } from './passes.js';
export type { AdapterDescription } from './describe.js';
export type { AdapterOptions } from './adapter.js';
export { GpuError, type GpuFault } from '../../kernels/host/errors.js';
export type { OperationOptions } from '../../kernels/options.js';
export { deviceOptions, planOperation } from '../../kernels/launches.js';
export { bufferOf, type BufferPlan, type OperationPlan, type Step } from '../../kernels/host/plan.js';
export { capacityOf } from '../../kernels/host/cache-layout.js';
