/** One point of a calibration: a call is checked against float64 at the very shape that is then timed. */
import type { OperationOptions, Tuning } from '../../kernels/options.js';
import type { Device } from '../gpu/device.js';
import type { BoundStep, Buffer } from '../gpu/passes.js';
import { GpuError } from '../../kernels/host/errors.js';
import type { OperationPlan } from '../../kernels/host/plan.js';
import { deviceOptions, planOperation } from '../../kernels/launches.js';
import { MATRIX_RELATIVE_ERROR, usesMatrixUnits } from '../../kernels/shared/dense/matrix.launch.js';
import { workOf, type KernelCall } from '../../kernels/registry.js';
import type { Sample } from '../schema/calibration.js';
import { mix } from '../numbers/hash.js';
import { holding, makeOperands, type Operands } from './inputs.js';
import { relativeError } from './verify.js';
import { BATCH_SECONDS } from './resolution.js';
import { batchTimers, type TimingRules } from './timing.js';
import type { OpenPoint } from './calibrate/visits.js';

const MIB = 2 ** 20;
/**
 * In a decode step a layer's operands come from memory, not from a cache: copies of them fill this much before one is
 * used again.
 */
const ROTATION_BYTES = 256 * MIB;
const MOST_COPIES = 64;
/** f32 sums over up to 2^17 terms; a kernel that is wrong is off by orders of magnitude more. */
const TOLERANCE = 2e-5;
/** Results that are stored as halves are rounded by up to 2^-11 of their size. */
const HALF_TOLERANCE = 5e-4;
/**
 * Operations of the float64 check before a point is timed. Outputs of large calls are drawn at random, sequences, heads
 * and rows alike: what is wrong at one shape alone is wrong in many of its outputs, and the contract tests check all of
 * them.
 */
const CHECK_FLOPS = 1e7;

/** Length of a submission, and most calls in it (resolution.ts): those of exact clocks unless given. */
export type MeasureRules = Omit<TimingRules, 'batchSeconds'> &
  Partial<Pick<TimingRules, 'batchSeconds'>> & { readonly seed: number };

const planOn = (device: Device, call: KernelCall, options: OperationOptions): OperationPlan =>
  planOperation(call, { ...deviceOptions(device), ...options });

/** The plan of a call, or why there is none. */
function planOrFault(device: Device, call: KernelCall, options: OperationOptions): OperationPlan | GpuError {
  try {
    return planOn(device, call, options);
  } catch (error) {
    if (error instanceof GpuError) return error;
    throw error;
  }
}

/** Why the call cannot be measured on this device, or null. */
export function obstacle(device: Device, call: KernelCall, options: OperationOptions = {}): string | null {
  const plan = planOrFault(device, call, options);
  if (plan instanceof GpuError) return plan.message;
  const largest = plan.buffers.reduce((a, b) => (b.bytes > a.bytes ? b : a));
  if (largest.bytes > device.limits.maxStorageBufferBindingSize)
    return (
      `${largest.name} takes ${largest.bytes} bytes, over the device's binding limit of ` +
      `${device.limits.maxStorageBufferBindingSize}`
    );
  const total = plan.buffers.reduce((sum, b) => sum + b.bytes, 0);
  if (total > device.bounds.pointBytes)
    return `operands take ${total} bytes, over the benchmark's limit of ${device.bounds.pointBytes}`;
  return null;
}

/** Launch constants of the call on this device, or null where it cannot run there. */
export function launchOf(device: Device, call: KernelCall, options: OperationOptions = {}): Tuning | null {
  const plan = planOrFault(device, call, options);
  return plan instanceof GpuError ? null : plan.tuning;
}

/** Options of a call whose kernel is tuned. */
export const tuningOptions = (tuning: Tuning | undefined): OperationOptions & { tuning?: Tuning } =>
  tuning ? { tuning } : {};

/**
 * Puts a calibration's point on the device, to be timed in turn with others. One that is known was checked at its first
 * visit.
 * @throws GpuError when the call cannot run or gives wrong results
 */
export function openPoint(
  device: Device,
  call: KernelCall,
  rules: MeasureRules,
  known: Sample | null,
  options: OperationOptions = {},
): Promise<OpenPoint> {
  return holding(device, async (owned) => {
    const reason = obstacle(device, call, options);
    if (reason !== null) throw new GpuError('unsupported', reason);
    const plan = planOn(device, call, options);
    const operands = await makeOperands(device, plan, rules.seed, true);
    owned.push(...operands.buffers.values());
    const bind = async (buffers: ReadonlyMap<string, Buffer>): Promise<BoundStep[]> => {
      const steps = await device.bindAll(plan, buffers);
      owned.push(...steps.map((s) => s.uniforms));
      return steps;
    };
    const copies = [await bind(operands.buffers)];
    await runOnce(device, copies[0]!);
    const error = known?.relativeError ?? (await checkedError(device, call, plan, operands, options, rules.seed));
    for (const buffers of await moreOperands(device, plan, operands, owned)) copies.push(await bind(buffers));
    const bytes = owned.reduce((sum, b) => sum + b.bytes, 0);
    const batches = { batchSeconds: BATCH_SECONDS[device.description.software ? 'software' : 'hardware'], ...rules };
    const {
      timers: [time],
    } = await batchTimers(device, [copies], batches);
    return { sample: sampleOf(call, plan, error), bytes, time: time! };
  });
}

/** The relative error of what a call has just written. @throws GpuError where it is too large */
async function checkedError(
  device: Device,
  call: KernelCall,
  plan: OperationPlan,
  operands: Operands,
  options: OperationOptions,
  seed: number,
): Promise<number> {
  let error = await relativeError(device, call, plan, operands, options, seed, CHECK_FLOPS);
  const tolerance = toleranceOf(plan);
  if (error > tolerance && mayCancel(plan)) error = await errorOfOthers(device, call, plan, options, seed);
  if (!(error <= tolerance)) throw new GpuError('internal', wrongResult(error, tolerance));
  return error;
}

export const wrongResult = (error: number | string, tolerance: number): string =>
  `wrong result: relative error ${error} against float64, at most ${tolerance} is allowed`;

/** Copies of operands beside them, which share all but what streams. @param owned takes the new buffers */
export async function moreOperands(
  device: Device,
  plan: OperationPlan,
  { buffers: first }: Operands,
  owned: Buffer[],
): Promise<ReadonlyMap<string, Buffer>[]> {
  const sets: Map<string, Buffer>[] = [];
  for (let i = 1; i < copyCount(device, plan); i++) {
    const buffers = new Map(first);
    for (const b of plan.buffers) {
      if (b.role !== 'stream') continue;
      const copy = await device.buffer(`${b.name} copy ${i}`, b.bytes);
      owned.push(copy);
      await device.copy(first.get(b.name) as Buffer, copy, copy.bytes);
      buffers.set(b.name, copy);
    }
    sets.push(buffers);
  }
  return sets;
}

/** Outputs of which all may come out near 0, where rounding is large beside them. */
const FEW_OUTPUTS = 8;
const mayCancel = (plan: OperationPlan): boolean =>
  plan.buffers.reduce((sum, b) => sum + (b.role === 'output' ? b.bytes : 0), 0) <= 4 * FEW_OUTPUTS;

/** The error with other operands, of which the terms do not cancel: a kernel that is wrong is wrong there as well. */
async function errorOfOthers(
  device: Device,
  call: KernelCall,
  plan: OperationPlan,
  options: OperationOptions,
  seed: number,
): Promise<number> {
  const others = mix(seed);
  const operands = await makeOperands(device, plan, others, true);
  const steps = await device.bindAll(plan, operands.buffers);
  try {
    await device.run(steps);
    return await relativeError(device, call, plan, operands, options, others, CHECK_FLOPS);
  } finally {
    device.free(...operands.buffers.values(), ...steps.map((step) => step.uniforms));
  }
}

/**
 * The first run of a call. One that takes too long is made again, because the first may include compiling it.
 * @throws GpuError `unsupported` for a call that would hold the device longer than its bounds allow
 */
async function runOnce(device: Device, steps: readonly BoundStep[]): Promise<void> {
  const { dispatchSeconds } = device.bounds;
  const seconds = async (): Promise<number> => {
    const { deviceSeconds, wallSeconds } = await device.run(steps);
    return deviceSeconds ?? wallSeconds;
  };
  if ((await seconds()) <= dispatchSeconds) return;
  const again = await seconds();
  if (again > dispatchSeconds) throw new GpuError('unsupported', tooLongFor(again, dispatchSeconds));
}

/** Why a call of so many seconds is not measured. */
export const tooLongFor = (seconds: number, most: number): string =>
  `takes about ${seconds.toPrecision(2)} s a call, and a device may be held for ${most} s at most`;

function sampleOf(call: KernelCall, plan: OperationPlan, relativeError: number): Sample {
  const { readBytes, writeBytes, flops } = workOf(call);
  const own = { variant: call.variant, shape: { ...call.shape }, tuning: { ...plan.tuning }, readBytes, writeBytes };
  return { ...own, flops, seconds: [], calls: [], probes: [], relativeError };
}

/** Largest relative error against float64 that an operation's results may have. */
export const toleranceOf = (plan: OperationPlan): number =>
  usesMatrixUnits(plan)
    ? MATRIX_RELATIVE_ERROR
    : plan.buffers.some((b) => b.role === 'output' && b.content === 'f16')
      ? HALF_TOLERANCE
      : TOLERANCE;

/** Copies of the streamed operands, so that a whole rotation exceeds the last-level cache. */
function copyCount(device: Device, plan: OperationPlan): number {
  const streamed = plan.buffers.reduce((sum, b) => sum + (b.role === 'stream' ? b.bytes : 0), 0);
  if (streamed === 0) return 1;
  const room = Math.floor(device.bounds.pointBytes / streamed);
  return Math.max(1, Math.min(MOST_COPIES, room, Math.ceil(ROTATION_BYTES / streamed)));
}
