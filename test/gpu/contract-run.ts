/** Runs a call on random operands and compares what it wrote with its float64 reference. */
import { makeOperands } from '../../src/bench/inputs.js';
import { relativeError } from '../../src/bench/verify.js';
import { planOperation, type Device, type OperationOptions, type OperationPlan } from '../../src/gpu/index.js';
import type { KernelCall } from '../../kernels/registry.js';

/** f32 arithmetic at ordinary scores. */
export const TOLERANCE = 1e-5;
/** Results that are stored as halves are rounded by up to 2^-11 of their size. */
export const HALF_TOLERANCE = 2 ** -11;
/**
 * Half-units in the last place of a score by which sums of its terms may be off, and the most that large scores excuse.
 */
const SCORE_UNITS = 8;
const MOST_TOLERANCE = 1e-3;

export interface Checked {
  readonly error: number;
  /** Largest magnitude of a split's maximum, as a natural logarithm: 0 without partials. */
  readonly largestScore: number;
}

/**
 * What softmax may be off by: an error e of a score is a relative error e of its weight, and a score s is known to |s|
 * 2^-24 times a small factor.
 */
export const scoreTolerance = (largestScore: number): number =>
  Math.min(MOST_TOLERANCE, Math.max(TOLERANCE, SCORE_UNITS * largestScore * 2 ** -24));

/**
 * @param parts options of calls that share the operands, one after the other; the reference takes those of the first
 */
export async function check(
  device: Device,
  call: KernelCall,
  parts: readonly OperationOptions[],
  seed: number,
): Promise<Checked> {
  const plans = parts.map((options) => planOperation(call, options));
  const plan = plans[0]!;
  const operands = await makeOperands(device, plan, seed);
  try {
    for (const part of plans) {
      const steps = await device.bindAll(part, operands.buffers);
      await device.run(steps);
      device.free(...steps.map((step) => step.uniforms));
    }
    const error = await relativeError(device, call, plan, operands, parts[0] ?? {}, seed);
    return { error, largestScore: await largestScore(device, call, plan, operands.buffers) };
  } finally {
    device.free(...operands.buffers.values());
  }
}

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
