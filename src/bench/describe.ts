/** The device and the program of a measurement, as the calibration records them. */
import type { Device } from '../gpu/device.js';
import type { Calibration } from '../schema/calibration.js';
import { VERSION } from '../version.js';

/** A calibration says at its top which clock timed it. */
const withoutClock = ({ clock: _, ...description }: Device['description']): Omit<Device['description'], 'clock'> =>
  description;

export const describeDevice = (device: Device): Calibration['device'] => ({
  ...withoutClock(device.description),
  features: [...device.features],
  limits: { ...device.limits },
  // WebGPU does not say; a figure that was not measured is not made up.
  memoryBytes: null,
});

export const describeProgram = (): Calibration['program'] => ({ name: 'lla-sim', version: VERSION });
