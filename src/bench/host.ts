/** The machine that a measurement was made on, as the calibration records it. */
import { readFileSync } from 'node:fs';
import { arch, cpus, platform, release, totalmem } from 'node:os';
import type { Device } from '../gpu/index.js';
import type { Calibration } from '../schema/calibration.js';

export const describeHost = (): Calibration['host'] => ({
  os: `${platform()} ${release()}`,
  arch: arch(),
  cpu: cpus()[0]?.model ?? 'unknown',
  cores: Math.max(1, cpus().length),
  memoryBytes: totalmem(),
  node: process.version,
});

export const describeDevice = (device: Device): Calibration['device'] => ({
  ...device.description,
  features: [...device.features],
  limits: { ...device.limits },
  // WebGPU does not say; a figure that was not measured is not made up.
  memoryBytes: null,
});

/** Name and version of the package, two levels above src/bench and dist/bench alike. */
export function describeProgram(): Calibration['program'] {
  const { name, version } = JSON.parse(
    readFileSync(new URL('../../package.json', import.meta.url), 'utf8'),
  ) as Calibration['program'];
  return { name, version };
}
