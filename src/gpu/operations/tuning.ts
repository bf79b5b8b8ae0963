/** Numbers of a kernel's launch that change its speed and not its results: which values `calibrate --tune` tries. */
import type { KernelName } from '../../kernels/registry.js';

/** Chosen values by name, for one kernel. What is not named keeps the planner's own choice. */
export type Tuning = Readonly<Record<string, number>>;

export interface Tunable {
  readonly name: string;
  /** Values worth trying; whether the device and a shape allow one, planning and verification find out. */
  readonly values: readonly number[];
}

/**
 * What can be tuned, by kernel. A planner reads these names with `tuned`; a name that it does not read changes nothing.
 */
export const TUNABLES: Partial<Record<KernelName, readonly Tunable[]>> = {
  matmul: [
    { name: 'workgroup', values: [8, 64, 128, 256] },
    { name: 'columns', values: [4, 8, 16, 32] },
    { name: 'rows', values: [2, 4, 8] },
    { name: 'steps', values: [1, 2, 4] },
    { name: 'matrixColumns', values: [64, 128] },
  ],
  attend: [
    { name: 'workgroup', values: [64, 128, 256] },
    { name: 'wide', values: [2, 4, 8] },
    { name: 'stream', values: [8, 32] },
    { name: 'lanes', values: [1, 2, 4] },
  ],
  attend_rebuild: [
    { name: 'workgroup', values: [64, 128] },
    { name: 'wide', values: [2, 4, 8] },
    { name: 'stream', values: [8, 32] },
    { name: 'lanes', values: [1, 2, 4] },
    { name: 'tokens', values: [1, 2, 4, 8] },
  ],
  rebuild: [
    { name: 'workgroup', values: [64, 128] },
    { name: 'tokens', values: [2, 4, 8] },
    { name: 'pairs', values: [2, 4, 8] },
  ],
  // `offsets`: of a block, that a thread takes; `ways`: blocks at a time; `handed`: whether threads hand each other
  // basis vectors.
  attend_block_absorbed: [
    { name: 'offsets', values: [1, 2, 4, 8] },
    { name: 'ways', values: [1, 2, 4] },
    { name: 'handed', values: [0, 1] },
  ],
  block_vectors: [{ name: 'workgroup', values: [32, 64, 128] }],
  block_basis: [
    { name: 'workgroup', values: [32, 64, 128] },
    { name: 'each', values: [1, 2, 4, 8] },
  ],
  attend_merge: [{ name: 'workgroup', values: [32, 64, 128] }],
  rmsnorm: [{ name: 'workgroup', values: [64, 128, 256] }],
};

/** The tuned value of that name, or the planner's own. */
export const tuned = (tuning: Tuning | undefined, name: string, own: number): number => tuning?.[name] ?? own;
