/** The GPU decoder's public side. */
export { openDecoder, type GpuDecoder } from './decoder.js';
export type { CachedRows } from './cache-rows.js';
export type { Allocation } from './allocations.js';
export type { DecoderWeights } from './weights.js';
