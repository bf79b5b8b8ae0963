/**
 * Every kernel that a schedule can name: its dimensions, what it reads, writes and computes, and the physical terms
 * that its time is made of (`<kernel>/terms.ts`). The cost model prices these, the benchmarks measure them, the decoder
 * executes them. How each is launched: launches.ts; what it is checked against: references.ts. tables/ has the folders.
 *
 * Activations are f32 in device memory; weights and codec matrices are f16; the cache has the storage type named by
 * the variant. All sizes are in elements, all work in bytes and floating-point operations (a multiply-add is two).
 */
import type { KernelSpec, Shape, Work } from './spec.js';
import * as TERMS from './tables/terms.js';

/** Every kernel by the name of its folder. The order is that of printing. */
const NAMES = [
  'embed',
  'rmsnorm',
  'head_norm',
  'rope',
  'rope_kept',
  'swiglu',
  'gate',
  'shift',
  'accumulate',
  'sample',
  'matmul',
  'append',
  'append_residual',
  'append_streams',
  'load',
  'attend',
  'attend_rebuild',
  'attend_residual',
  'attend_streams',
  'block_vectors',
  'block_basis',
  'attend_block_absorbed',
  'attend_merge',
  'attend_current',
  'attend_join',
  'choose_keys',
  'join_chosen',
  'rebuild',
  'attend_prefill',
  'attend_carried',
  'mass',
  'evict',
  'mass_prefill',
  'evict_prefill',
  'evict_chunk',
] as const satisfies readonly (keyof typeof TERMS)[];

/** A kernel of `KERNELS`. */
export type KernelName = (typeof NAMES)[number];
export const KERNEL_NAMES: KernelName[] = [...NAMES];

/** The fields of a kernel's shape. */
export type ShapeOf<K extends KernelName> =
  (typeof TERMS)[K]['spec'] extends KernelSpec<infer D> ? Readonly<Record<D, number>> : never;

/** Every kernel by its name: bytes, operations and launch of its calls. */
export const KERNELS = Object.fromEntries(KERNEL_NAMES.map((name) => [name, TERMS[name].spec])) as Readonly<
  Record<KernelName, KernelSpec>
>;

/** A call of one kernel at one shape: what a schedule lists, a benchmark measures and a predictor prices. */
export interface KernelCall {
  kernel: KernelName;
  variant: string;
  shape: Shape;
}

/** Raised whenever a kernel's dims or terms change, or the model over them: predictors of another version are stale. */
export const TERMS_VERSION = 7;

/** Bytes and operations of a call. */
export function workOf(call: KernelCall): Work {
  return KERNELS[call.kernel].work(call.shape, call.variant);
}
