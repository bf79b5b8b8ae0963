/** The carried calibration was measured with the launch constants that the kernels have today. */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { launchOf, tuningOptions } from '../../src/bench/measure.js';
import { openDevice, type Device } from '../../src/gpu/index.js';
import { calibrationSchema } from '../../src/schema/calibration.js';
import { kernelHash } from '../../src/kernels/source.js';
import type { KernelName } from '../../src/kernels/registry.js';

const { kernels, device: measured } = calibrationSchema.parse(
  JSON.parse(readFileSync('calibrations/mesa-llvmpipe.json', 'utf8')),
);

let device: Device;
beforeAll(async () => {
  device = await openDevice();
});
afterAll(() => device.close());

test.each(kernels.filter((k) => k.samples.length > 0).map((k) => [k.kernel as KernelName, k] as const))(
  '%s, or it counts as stale',
  (kernel, { sourceHash, samples, tuning }) => {
    // Launches follow the adapter: those of another kind say nothing.
    if (sourceHash !== kernelHash(kernel) || device.description.software !== measured.software) return;
    for (const { variant, shape, tuning: launch } of samples) {
      expect(
        launchOf(device, { kernel, variant, shape }, tuningOptions(tuning)),
        `${kernel} ${variant} ${JSON.stringify(shape)}: measure it again, or count its launch up in LAUNCH_VERSIONS`,
      ).toEqual(launch);
    }
  },
);
