/** From a call of the registry to its launches. */
import type { OperationOptions } from './options.js';
import type { OperationPlan } from './host/plan.js';
import type { Launch, Tunable } from './launch.js';
import type { KernelCall, KernelName } from './registry.js';
import * as TABLE from './tables/launch.js';
import { matrixUnitsObstacle, type DeviceTraits } from './shared/dense/matrix.launch.js';

const LAUNCHES: Readonly<Record<KernelName, { readonly launch: Launch }>> = TABLE;

/** Tunable constants by kernel. */
export const TUNABLES: Partial<Record<KernelName, readonly Tunable[]>> = Object.fromEntries(
  Object.entries(LAUNCHES).flatMap(([kernel, { launch }]) => (launch.tunables ? [[kernel, launch.tunables]] : [])),
);

/** Options that the device decides: launch constants of software adapters and of small subgroups, and matrix units. */
export const deviceOptions = (
  device: DeviceTraits,
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
  LAUNCHES[call.kernel].launch.plan(call, narrowed(options));

/** Threads that may share a cached row where nothing else is said. */
const USUAL_SUBGROUP = 8;

/** Smaller subgroups: fewer threads share a row, and take more of it each. */
function narrowed(options: OperationOptions): OperationOptions {
  const { subgroupThreads = USUAL_SUBGROUP } = options;
  return subgroupThreads >= USUAL_SUBGROUP
    ? options
    : { ...options, tuning: { lanes: 1, wide: subgroupThreads, ...options.tuning } };
}
