/** Runs a call on random operands and compares what it wrote with its float64 reference. */
import { expect } from 'vitest';
import { makeOperands } from '../../src/bench/inputs.js';
import { relativeError } from '../../src/bench/verify.js';
import { planOperation, type Device, type OperationOptions, type OperationPlan } from '../../src/gpu/index.js';
import type { KernelCall } from '../../kernels/registry.js';
import { SEED } from './random.js';

/** f32 arithmetic at ordinary scores. */
export const TOLERANCE = 1e-5;
/** Results that are stored as halves are rounded by up to 2^-11 of their size. */
export const HALF_TOLERANCE = 2 ** -11;
/** Half-units in the last place by which a score may be off, and the most that large scores excuse. */
const SCORE_UNITS = 8;
const MOST_TOLERANCE = 1e-3;

/** An error e of a score is a relative error e of its weight; a score s is known to |s| 2^-24 times a small factor. */
export const scoreTolerance = (largestScore: number): number =>
  Math.min(MOST_TOLERANCE, Math.max(TOLERANCE, SCORE_UNITS * largestScore * 2 ** -24));

/**
 * Fails where a call is further off than the tolerance.
 * @param parts options of calls that share the operands, one after the other; the reference takes those of the first
 * @param tolerance may depend on the largest score
 */
export async function expectContract(
  device: Device,
  call: KernelCall,
  parts: OperationOptions | readonly OperationOptions[],
  seed: number,
  tolerance: number | ((largestScore: number) => number) = TOLERANCE,
): Promise<void> {
  const all = [parts].flat();
  const plans = all.map((options) => planOperation(call, options));
  const plan = plans[0]!;
  const operands = await makeOperands(device, plan, seed);
  try {
    for (const part of plans) {
      const steps = await device.bindAll(part, operands.buffers);
      await device.run(steps);
      device.free(...steps.map((step) => step.uniforms));
    }
    const error = await relativeError(device, call, plan, operands, all[0]!, seed);
    const most =
      typeof tolerance === 'number' ? tolerance : tolerance(await largestScore(device, call, plan, operands.buffers));
    const where = `${JSON.stringify(call)} ${JSON.stringify(parts)}, LLA_SIM_SEED=${SEED}`;
    expect(error <= most, `relative error ${error}, at most ${most}, at ${where}`).toBe(true);
  } finally {
    device.free(...operands.buffers.values());
  }
}

/** Largest magnitude of a split's maximum, as a natural logarithm: 0 without partials. */
async function largestScore(
  device: Device,
  { shape }: KernelCall,
  plan: OperationPlan,
  buffers: Awaited<ReturnType<typeof makeOperands>>['buffers'],
): Promise<number> {
  const width = shape.valueWidth ?? shape.rankV;
  const partials = plan.buffers.find((b) => b.name === 'partials');
  const buffer = buffers.get('partials');
  if (width === undefined || !partials || !buffer) return 0;
  const values = new Float32Array(await device.read(buffer, partials.bytes));
  let most = 0;
  // An empty split has no tokens, and a maximum that stands for minus infinity.
  for (let at = width; at < values.length; at += width + 2)
    if (values[at + 1]! !== 0) most = Math.max(most, Math.abs(values[at]!) * Math.LN2);
  return most;
}
