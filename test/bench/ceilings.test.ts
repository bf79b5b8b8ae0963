/** The ceilings: what is measured here, what is refused with a reason, and valid WGSL for matrix units. */
import '../gpu/timed.js';
import { describe, expect, test } from 'vitest';
import { matrixObstacle, measureCeilings, measureOverheads, transferOf } from '../../src/bench/ceilings.js';
import { openProbe } from '../../src/bench/probe.js';
import { openDevice } from '../../src/gpu/index.js';
import { describeGpu } from '../gpu/device.js';

const unit = { componentType: 'f16', resultComponentType: 'f32', M: 16, N: 16, K: 16 };
const device = (
  features: readonly string[],
  matrixConfigs: readonly (typeof unit)[],
  subgroupSizes: readonly [number, number] = [32, 32],
) => ({ has: (f: string) => features.includes(f), units: { matrixConfigs, subgroupSizes } });
const all = ['shader-f16', 'subgroups', 'chromium-experimental-subgroup-matrix'];

describe('matrix units are used only where the kernel fits them', () => {
  test.each([
    ['no feature', device(['shader-f16', 'subgroups'], [unit]), /has no chromium-experimental-subgroup-matrix/],
    ['no f16', device(all.slice(1), [unit]), /need shader-f16/],
    [
      'another shape',
      device(all, [{ ...unit, M: 8, N: 8, K: 8 }]),
      /no matrix unit multiplies 16×16×16 f16 into f32; there is 8×8×8 f16 into f32/,
    ],
    ['another result', device(all, [{ ...unit, resultComponentType: 'f16' }]), /there is 16×16×16 f16 into f16/],
    ['no shape', device(all, []), /there are none/],
    ['subgroups of several sizes', device(all, [unit], [8, 32]), /subgroups have 8 to 32 threads/],
  ])('%s', (_, d, reason) => expect(matrixObstacle(d)).toMatch(reason));
  test('all there', () => expect(matrixObstacle(device(all, [unit]))).toBeNull());
});

test('a transfer is what the small one costs, and the rate of what the large one takes more', () => {
  const { seconds, bytesPerSecond } = transferOf(1e-3, 0.033);
  expect(seconds).toBe(1e-3);
  expect(bytesPerSecond).toBeCloseTo((32 * 2 ** 20 - 16) / 0.032, 3);
  // Of two that took as long as each other no rate beyond all machines follows.
  expect(transferOf(0.04, 0.032).bytesPerSecond).toBeCloseTo((32 * 2 ** 20 - 16) / 0.032, 3);
});

/** It runs nothing, but has every feature and checks WGSL. */
describeGpu('on Dawn’s null backend', () => {
  test('the kernel for matrix units is accepted', async () => {
    const nothing = await openDevice({ backend: 'null' });
    try {
      expect(nothing.has('chromium-experimental-subgroup-matrix')).toBe(true);
      const step = {
        source: 'ceiling_matrix',
        element: 'f32',
        constants: {},
        uniforms: { rounds: 1 },
        buffers: [{ name: 'sums', access: 'readWrite' }],
        workgroups: [1, 1, 1],
      } as const;
      await expect(nothing.pipeline(step)).resolves.toBeDefined();
      const wrong = '@compute @workgroup_size(32) fn main() { let m = subgroup_matrix_left<f32, 8>(); }';
      const broken = { id: 'broken', load: () => `enable chromium_experimental_subgroup_matrix; ${wrong}` };
      await expect(nothing.pipeline(step, broken)).rejects.toThrow(/subgroup_matrix_left/);
    } finally {
      nothing.close();
    }
  });
});

describeGpu('ceilings', (gpu) => {
  test('every rate is there or has its reason; transfers and the probe take time', async () => {
    const overheads = await measureOverheads(gpu);
    for (const t of [overheads.upload, overheads.readback]) {
      expect(t?.seconds).toBeGreaterThan(0);
      expect(t?.bytesPerSecond).toBeGreaterThan(1e7);
      expect(t?.bytesPerSecond).toBeLessThan(1e13);
    }
    const ceilings = await measureCeilings(gpu, overheads.submitSeconds);
    expect(ceilings.f16FlopsPerSecond !== null).toBe(gpu.has('shader-f16'));
    for (const name of ['f16FlopsPerSecond', 'matrixFlopsPerSecond'] as const)
      expect(ceilings[name] === null, name).toBe(ceilings.reasons?.[name] !== undefined);
    const probe = await openProbe(gpu, { clock: 'wall', submitSeconds: overheads.submitSeconds });
    const seconds = await probe.run();
    probe.free();
    expect(seconds).toBeGreaterThan(1e-5);
  });
});
