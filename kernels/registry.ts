/**
 * Every kernel that a schedule can name: its dimensions, what it reads, writes and computes, and the physical terms
 * that its time is made of (`<kernel>/terms.ts`). The cost model prices these, the benchmarks measure them, the decoder
 * executes them. How each is launched: launches.ts; what it is checked against: references.ts.
 *
 * Activations are f32 in device memory; weights and codec matrices are f16; the cache has the storage type named by
 * the variant. All sizes are in elements, all work in bytes and floating-point operations (a multiply-add is two).
 */
import { spec as accumulate } from './accumulate/terms.js';
import { spec as append } from './append/terms.js';
import { spec as appendResidual } from './append_residual/terms.js';
import { spec as attend } from './attend/terms.js';
import { spec as attendBlockAbsorbed } from './attend_block_absorbed/terms.js';
import { spec as attendCarried } from './attend_carried/terms.js';
import { spec as attendCurrent } from './attend_current/terms.js';
import { spec as attendJoin } from './attend_join/terms.js';
import { spec as attendMerge } from './attend_merge/terms.js';
import { spec as attendPrefill } from './attend_prefill/terms.js';
import { spec as attendRebuild } from './attend_rebuild/terms.js';
import { spec as attendResidual } from './attend_residual/terms.js';
import { spec as blockBasis } from './block_basis/terms.js';
import { spec as blockVectors } from './block_vectors/terms.js';
import { spec as embed } from './embed/terms.js';
import { spec as evict } from './evict/terms.js';
import { spec as evictChunk } from './evict_chunk/terms.js';
import { spec as evictPrefill } from './evict_prefill/terms.js';
import { spec as gate } from './gate/terms.js';
import { spec as load } from './load/terms.js';
import { spec as mass } from './mass/terms.js';
import { spec as massPrefill } from './mass_prefill/terms.js';
import { spec as matmul } from './matmul/terms.js';
import { spec as rebuild } from './rebuild/terms.js';
import { spec as rmsnorm } from './rmsnorm/terms.js';
import { spec as rope } from './rope/terms.js';
import { spec as ropeKept } from './rope_kept/terms.js';
import { spec as sample } from './sample/terms.js';
import { spec as shift } from './shift/terms.js';
import type { KernelSpec, Shape, Work } from './spec.js';
import { spec as swiglu } from './swiglu/terms.js';

/** The order is that of printing. */
const SPECS = {
  embed,
  rmsnorm,
  rope,
  rope_kept: ropeKept,
  swiglu,
  gate,
  shift,
  accumulate,
  sample,
  matmul,
  append,
  append_residual: appendResidual,
  load,
  attend,
  attend_rebuild: attendRebuild,
  attend_residual: attendResidual,
  block_vectors: blockVectors,
  block_basis: blockBasis,
  attend_block_absorbed: attendBlockAbsorbed,
  attend_merge: attendMerge,
  attend_current: attendCurrent,
  attend_join: attendJoin,
  rebuild,
  attend_prefill: attendPrefill,
  attend_carried: attendCarried,
  mass,
  evict,
  mass_prefill: massPrefill,
  evict_prefill: evictPrefill,
  evict_chunk: evictChunk,
} as const satisfies Record<string, KernelSpec>;

export type KernelName = keyof typeof SPECS;

/** Every kernel by its name: bytes, operations and launch of its calls. */
export const KERNELS: Readonly<Record<KernelName, KernelSpec>> = SPECS;

/** A call of one kernel at one shape: what a schedule lists, a benchmark measures and a predictor prices. */
export interface KernelCall {
  kernel: KernelName;
  variant: string;
  shape: Shape;
}

/** Raised whenever a kernel's dims or terms change: fitted coefficients of another version are fitted again. */
export const TERMS_VERSION = 6;

export const KERNEL_NAMES = Object.keys(KERNELS) as KernelName[];

/** Bytes and operations of a call. */
export function workOf(call: KernelCall): Work {
  return KERNELS[call.kernel].work(call.shape, call.variant);
}
