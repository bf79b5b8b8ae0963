/** Puts two versions of a call on the device: both checked against float64, then bound to the same operands. */
import {
  deviceOptions,
  GpuError,
  planOperation,
  type BoundStep,
  type Buffer,
  type Device,
  type OperationPlan,
} from '../../gpu/index.js';
import type { SourceSet } from '../../../kernels/source.js';
import type { KernelCall } from '../../../kernels/registry.js';
import { makeOperands } from '../inputs.js';
import { copyCount, toleranceOf } from '../measure.js';
import { relativeError } from '../verify.js';
import type { Pair } from './rounds.js';

/** One version of the program's kernels cannot be measured at a call. */
export class VersionError extends Error {
  override readonly name = 'VersionError';

  constructor(
    readonly fault: 'does not run' | 'wrong result',
    message: string,
  ) {
    super(message);
  }
}

export interface PreparedPair extends Pair {
  free(): void;
}

/**
 * Runs a version once on fresh operands and compares with the float64 reference.
 * @throws VersionError when it does not compile, does not run or is wrong
 */
export async function verifyVersion(
  device: Device,
  call: KernelCall,
  sources: SourceSet,
  seed: number,
): Promise<number> {
  const plan = planOperation(call, deviceOptions(device));
  const owned: Buffer[] = [];
  try {
    // Operands first: what they lack is the device's fault, not the version's.
    const operands = await makeOperands(device, plan, seed, true);
    owned.push(...operands.buffers.values());
    let error: number;
    try {
      const steps = await device.bindAll(plan, operands.buffers, sources);
      owned.push(...steps.map((s) => s.uniforms));
      await device.run(steps);
      error = await relativeError(device, call, plan, operands, {}, seed);
    } catch (problem) {
      // The rest is the device's fault, not the version's.
      if (!(problem instanceof GpuError) || (problem.fault !== 'validation' && problem.fault !== 'internal'))
        throw problem;
      throw new VersionError('does not run', problem.message);
    }
    const tolerance = toleranceOf(plan);
    if (!(error <= tolerance))
      throw new VersionError(
        'wrong result',
        `wrong result: relative error ${error.toPrecision(2)} against float64, at most ${tolerance} is allowed`,
      );
    return error;
  } finally {
    device.free(...owned);
  }
}

/** Binds both versions to the same operands and copies of them. The caller frees. */
export async function preparePair(
  device: Device,
  call: KernelCall,
  versions: { readonly before: SourceSet; readonly now: SourceSet },
  seed: number,
): Promise<PreparedPair> {
  const plan = planOperation(call, deviceOptions(device));
  const owned: Buffer[] = [];
  const free = (): void => device.free(...owned);
  try {
    const operands = await makeOperands(device, plan, seed, true);
    owned.push(...operands.buffers.values());
    const before: BoundStep[][] = [];
    const now: BoundStep[][] = [];
    for (let i = 0; i < copyCount(device, plan); i++) {
      const buffers = i === 0 ? operands.buffers : await copyStreams(device, plan, operands.buffers, i, owned);
      for (const [side, sources] of [
        [before, versions.before],
        [now, versions.now],
      ] as const) {
        const steps = await device.bindAll(plan, buffers, sources);
        owned.push(...steps.map((s) => s.uniforms));
        side.push(steps);
      }
    }
    return { before, now, free };
  } catch (error) {
    free();
    throw error;
  }
}

async function copyStreams(
  device: Device,
  plan: OperationPlan,
  first: ReadonlyMap<string, Buffer>,
  index: number,
  owned: Buffer[],
): Promise<Map<string, Buffer>> {
  const buffers = new Map(first);
  for (const b of plan.buffers) {
    if (b.role !== 'stream') continue;
    const copy = await device.buffer(`${b.name} copy ${index}`, b.bytes);
    owned.push(copy);
    await device.copy(first.get(b.name) as Buffer, copy, copy.bytes);
    buffers.set(b.name, copy);
  }
  return buffers;
}
