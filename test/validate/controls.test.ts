/** Points of a calibration that are measured anew: which ones, and what they tell of other shapes. */
import '../gpu/timed.js';
import { describe, expect, it, test } from 'vitest';
import { workOf, type KernelCall } from '../../kernels/registry.js';
import { Budget } from '../../src/io/budget.js';
import type { Sample } from '../../src/schema/calibration.js';
import type { Calibrated } from '../../src/validate/calibrated.js';
import { chooseControls, driftOf, DriftWatch, kernelDrift, type ControlPoint } from '../../src/validate/controls.js';
import { describeGpu } from '../gpu/device.js';
import { randomOf, SEED } from '../gpu/random.js';

const matmul = (m: number, n: number, k: number): KernelCall => ({
  kernel: 'matmul',
  variant: 'f16',
  shape: { groups: 1, m, k, n },
});
const sampleOf = (call: KernelCall, seconds: number[]): Sample => {
  const { readBytes, writeBytes, flops } = workOf(call);
  const { variant, shape } = call;
  return { variant, shape, tuning: {}, readBytes, writeBytes, flops, seconds, relativeError: 0 };
};
const calibrated = (samples: Sample[], stale: string[] = []): Calibrated =>
  ({
    stale,
    calibration: {
      overheads: { submitSeconds: 1e-5, dispatchSeconds: 1e-6 },
      kernels: [{ kernel: 'matmul', samples }],
    },
  }) as unknown as Calibrated;
const control = (call: KernelCall, ratio: number): ControlPoint & { ratio: number } => ({
  kernel: call.kernel,
  sample: sampleOf(call, [1]),
  tuning: undefined,
  ratio,
});

describe(`control points (LLA_SIM_SEED=${SEED})`, () => {
  const samples = [matmul(1, 2048, 2048), matmul(1, 2048, 5632), matmul(4, 2048, 2048), matmul(64, 2048, 2048)].map(
    (call) => sampleOf(call, [0.01]),
  );
  it('are the nearest to the calls that take longest', () => {
    const calls = [
      { call: matmul(1, 2048, 2040), seconds: 1 },
      { call: matmul(3, 2048, 2048), seconds: 3 },
      { call: matmul(1, 2050, 5632), seconds: 2 },
    ];
    const nearest = [2, 1, 0].map((i) => samples[i]);
    expect(chooseControls(calibrated(samples), calls, 2).map((c) => c.sample)).toEqual(nearest.slice(0, 2));
    expect(chooseControls(calibrated(samples), calls, 9).map((c) => c.sample)).toEqual(nearest);
  });
  it('are neither stale, nor of another variant, nor too long', () => {
    const calls = [{ call: matmul(1, 2048, 2048), seconds: 1 }];
    expect(chooseControls(calibrated(samples, ['matmul']), calls, 9)).toEqual([]);
    const other = { ...matmul(1, 2048, 2048), variant: 'f32' };
    expect(chooseControls(calibrated(samples), [{ call: other, seconds: 1 }], 9)).toEqual([]);
    const long = sampleOf(matmul(1, 2048, 2048), [2, 2, 2]);
    const chosen = chooseControls(calibrated([long, samples[3] as Sample]), calls, 9);
    expect(chosen.map((c) => c.sample)).toEqual([samples[3]]);
  });
  it('tell drift by kernel, the nearer the more', () => {
    const random = randomOf(SEED);
    const [near, far] = [random.whole(50, 150) / 100, random.whole(50, 150) / 100];
    const one = matmul(1, 2047, 2047);
    const drift = kernelDrift([control(one, near), control(matmul(7, 2047, 2047), far)]);
    // Two octaves between them: weights 1 and a quarter.
    expect(drift(one)).toBeCloseTo(Math.exp((Math.log(near) + Math.log(far) / 4) / 1.25), 12);
    expect(drift(matmul(3, 2047, 2047))).toBeCloseTo(Math.sqrt(near * far), 12);
    const other = { kernel: 'rmsnorm', variant: 'f32', shape: { rows: 1, width: 1 } } as const;
    expect(drift(other)).toBeCloseTo(Math.sqrt(near * far), 12);
    // Of another kernel: an eighth.
    const apart = kernelDrift([control(one, near), control(other, far)]);
    expect(apart(one)).toBeCloseTo(Math.exp((Math.log(near) + Math.log(far) / 8) / 1.125), 12);
    const calls = [one, other].map((call, i) => ({ call, seconds: 3 - 2 * i }));
    expect(driftOf(calls, drift)).toBeCloseTo((3 * drift(one) + Math.sqrt(near * far)) / 4, 12);
    expect(kernelDrift([])(other)).toBe(1);
    expect(driftOf([], drift)).toBe(1);
  });
});

describeGpu('control points on a device', (device) => {
  test('are measured in turn, and told by their times since the last look', async () => {
    const calls = [matmul(1, 256, 512), matmul(2, 128, 256)];
    const points = calls.map((call): ControlPoint => ({ ...control(call, 1), sample: sampleOf(call, [1e-3]) }));
    const watch = await DriftWatch.open(device, calibrated([]), points, SEED);
    try {
      await watch.turn(Infinity);
      expect(watch.look()(calls[0] as KernelCall)).toBe(1);
      await watch.renew(new Budget(Infinity));
      for (let i = 0; i < 4; i++) await watch.turn(Infinity);
      const rows = watch.rows();
      expect(rows.map((r) => r.repetitions)).toEqual([4, 4]);
      expect(rows.map((r) => r.shape)).toEqual(calls.map((c) => c.shape));
      for (const r of rows) expect(r.measuredSeconds).toBeGreaterThan(0);
      const ratios = rows.map((r) => r.measuredSeconds / r.calibratedSeconds);
      const told = watch.look()(calls[0] as KernelCall);
      expect(told).toBeGreaterThanOrEqual(Math.min(...ratios) * (1 - 1e-12));
      expect(told).toBeLessThanOrEqual(Math.max(...ratios) * (1 + 1e-12));
      await watch.renew(new Budget(Infinity));
      await watch.turn(0);
      await watch.turn(1e-12);
      expect(watch.rows().map((r) => r.repetitions)).toEqual([5, 4]);
    } finally {
      watch.free();
    }
  });
});
