/** Attention on a device without subgroups: each row has one thread, and the same result. */
import { expect, test } from 'vitest';
import { openPoint } from '../../src/bench/measure.js';
import { openAdapter } from '../../src/gpu/adapter.js';
import { deviceOf } from '../../src/gpu/opening.js';
import type { Platform } from '../../src/gpu/platform.js';
import { describeGpu } from './device.js';
import { EIGHT_THREADS } from './run-plan.js';

const platform: Platform = {
  bounds: { dispatchSeconds: Infinity, pointBytes: 2 ** 28, roundedClocks: false },
  wait: (finished) => finished,
};
const RULES = { clock: 'wall', submitSeconds: 0, seed: 1 } as const;
const HEADS = { sequences: 1, context: 40, kvHeads: 2, group: 1, splits: 1 };
const ROWS = { keyWidth: 16, valueWidth: 16, branchWidth: 0, branchHeads: 0, groupSize: 0 };
const CALL = { kernel: 'attend', variant: 'f16', shape: { ...HEADS, ...ROWS } } as const;

describeGpu('a device without subgroups', () => {
  test('runs attention with a thread a row, and says which kernel it cannot run', async () => {
    const { adapter, description, gpu } = await openAdapter();
    const narrow = {
      features: new Set([...adapter.features].filter((f) => f !== 'subgroups')),
      limits: adapter.limits,
      info: adapter.info,
      requestDevice: (descriptor: GPUDeviceDescriptor) => adapter.requestDevice(descriptor),
    } as unknown as GPUAdapter;
    const device = await deviceOf(narrow, description, Object.assign(platform, { gpu }));
    try {
      expect(device.has('subgroups')).toBe(false);
      const point = await openPoint(device, CALL, RULES, null);
      expect(point.sample.tuning).toMatchObject({ wide: 1, lanes: 1 });
      expect(point.sample.relativeError).toBeLessThan(2e-5);
      point.free();
      await expect(openPoint(device, EIGHT_THREADS, RULES, null)).rejects.toThrow(/this adapter has no subgroups/);
    } finally {
      device.close();
    }
  });
});
