/** The GPU side's public face in Node. Nothing in the planner imports it, nor what a page may load. */
export { openDevice } from './dawn.js';
export { partOf, Device, type Buffer, type BoundStep, type RunTime } from './device.js';
export type { AdapterDescription } from './describe.js';
export type { AdapterOptions } from './adapter.js';
export { GpuError, type GpuFault } from './errors.js';
export type { OperationOptions } from '../kernels/launch.js';
export { deviceOptions, planOperation } from '../kernels/launches.js';
export { bufferOf, type BufferPlan, type OperationPlan, type Step } from './plan.js';
export { capacityOf } from './cache-layout.js';
