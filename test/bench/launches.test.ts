/** The carried calibration was measured with the launch constants that the kernels have today, on such a device. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { launchOf, tuningOptions } from '../../src/bench/measure.js';
import type { Device } from '../../src/gpu/index.js';
import { calibrationSchema } from '../../src/schema/calibration.js';
import { kernelHash } from '../../kernels/source.js';
import type { KernelName } from '../../kernels/registry.js';

const { kernels, device: measured } = calibrationSchema.parse(
  JSON.parse(readFileSync('calibrations/mesa-llvmpipe.json', 'utf8')),
);
/** As much of the device that was measured as launches follow: no adapter is needed, and none stands in for it. */
const device = {
  description: measured,
  has: (feature: string) => measured.features.includes(feature),
  limits: measured.limits,
  units: { matrixConfigs: [], subgroupSizes: [0, 0] },
} as unknown as Device;

test('it is of a software adapter without matrix units', () => {
  expect(measured.software).toBe(true);
  expect(measured.features.join()).not.toContain('matrix');
});

test.for(kernels.filter((k) => k.samples.length > 0).map((k) => [k.kernel as KernelName, k] as const))(
  '%s, or it counts as stale',
  ([kernel, { sourceHash, samples, tuning }], { skip }) => {
    skip(sourceHash !== kernelHash(kernel), 'stale: the kernel has changed since');
    for (const { variant, shape, tuning: launch } of samples) {
      expect(
        launchOf(device, { kernel, variant, shape }, tuningOptions(tuning)),
        `${kernel} ${variant} ${JSON.stringify(shape)}: measure it again, or count its launch up in LAUNCH_VERSIONS`,
      ).toEqual(launch);
    }
  },
);
