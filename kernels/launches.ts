/** From a call of the registry to its launches. */
import type { OperationOptions } from './options.js';
import type { Device } from '../src/gpu/device.js';
import type { OperationPlan } from '../src/gpu/plan.js';
import { launch as accumulate } from './accumulate/launch.js';
import { launch as append } from './append/launch.js';
import { launch as appendResidual } from './append_residual/launch.js';
import { launch as attend } from './attend/launch.js';
import { launch as attendBlockAbsorbed } from './attend_block_absorbed/launch.js';
import { launch as attendCarried } from './attend_carried/launch.js';
import { launch as attendCurrent } from './attend_current/launch.js';
import { launch as attendJoin } from './attend_join/launch.js';
import { launch as attendMerge } from './attend_merge/launch.js';
import { launch as attendPrefill } from './attend_prefill/launch.js';
import { launch as attendRebuild } from './attend_rebuild/launch.js';
import { launch as attendResidual } from './attend_residual/launch.js';
import { launch as blockBasis } from './block_basis/launch.js';
import { launch as blockVectors } from './block_vectors/launch.js';
import { launch as embed } from './embed/launch.js';
import { launch as evict } from './evict/launch.js';
import { launch as evictChunk } from './evict_chunk/launch.js';
import { launch as evictPrefill } from './evict_prefill/launch.js';
import { launch as gate } from './gate/launch.js';
import type { Launch, Tunable } from './launch.js';
import { launch as load } from './load/launch.js';
import { launch as mass } from './mass/launch.js';
import { launch as massPrefill } from './mass_prefill/launch.js';
import { launch as matmul } from './matmul/launch.js';
import { launch as rebuild } from './rebuild/launch.js';
import type { KernelCall, KernelName } from './registry.js';
import { launch as rmsnorm } from './rmsnorm/launch.js';
import { launch as rope } from './rope/launch.js';
import { launch as ropeKept } from './rope_kept/launch.js';
import { launch as sample } from './sample/launch.js';
import { launch as shift } from './shift/launch.js';
import { matrixUnitsObstacle } from './shared/matrix.launch.js';
import { launch as swiglu } from './swiglu/launch.js';

const LAUNCHES: Readonly<Record<KernelName, Launch>> = {
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
  attend,
  attend_rebuild: attendRebuild,
  attend_residual: attendResidual,
  block_vectors: blockVectors,
  block_basis: blockBasis,
  attend_block_absorbed: attendBlockAbsorbed,
  attend_merge: attendMerge,
  attend_current: attendCurrent,
  attend_join: attendJoin,
  mass,
  evict,
  attend_prefill: attendPrefill,
  attend_carried: attendCarried,
  mass_prefill: massPrefill,
  evict_prefill: evictPrefill,
  evict_chunk: evictChunk,
  load,
  rebuild,
};

/** Tunable constants by kernel. */
export const TUNABLES: Partial<Record<KernelName, readonly Tunable[]>> = Object.fromEntries(
  Object.entries(LAUNCHES).flatMap(([kernel, { tunables }]) => (tunables ? [[kernel, tunables]] : [])),
);

/** Options that the device decides: launch constants of software adapters and of small subgroups, and matrix units. */
export const deviceOptions = (
  device: Device,
): Pick<OperationOptions, 'software' | 'matrixUnits' | 'subgroupThreads'> => ({
  software: device.description.software,
  matrixUnits: matrixUnitsObstacle(device) === null,
  ...(device.has('subgroups')
    ? device.units.subgroupSizes[0] > 0
      ? { subgroupThreads: device.units.subgroupSizes[0] }
      : {}
    : { subgroupThreads: 1 }),
});

/**
 * The buffers and steps of a call.
 * @throws GpuError `unsupported` for a shape or variant that no kernel handles
 */
export const planOperation = (call: KernelCall, options: OperationOptions = {}): OperationPlan =>
  LAUNCHES[call.kernel].plan(call, narrowed(options));

/** Threads that may share a cached row where nothing else is said. */
const USUAL_SUBGROUP = 8;

/** Smaller subgroups: fewer threads share a row, and take more of it each. */
function narrowed(options: OperationOptions): OperationOptions {
  const { subgroupThreads = USUAL_SUBGROUP } = options;
  return subgroupThreads >= USUAL_SUBGROUP
    ? options
    : { ...options, tuning: { lanes: 1, wide: subgroupThreads, ...options.tuning } };
}
