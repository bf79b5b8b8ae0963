/** The machine that a measurement was made on, as the calibration records it. */
import { arch, cpus, platform, release, totalmem } from 'node:os';
import type { Calibration } from '../schema/calibration.js';

export const describeHost = (): Calibration['host'] => ({
  os: `${platform()} ${release()}`,
  arch: arch(),
  cpu: cpus()[0]?.model ?? 'unknown',
  cores: Math.max(1, cpus().length),
  memoryBytes: totalmem(),
  node: process.version,
});
