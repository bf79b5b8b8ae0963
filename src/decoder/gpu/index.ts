/** The GPU decoder's public side. */
export { openDecoder, type GpuDecoder, type GpuDecoderOptions, type StepResult } from './decoder.js';
export { plannedContext } from './options.js';
export type { CachedRows, CachePlace } from './cache-rows.js';
export type { Allocation, AllocationKind } from './allocations.js';
export type { Operation } from './program.js';
export type { DecoderWeights } from './weights.js';
