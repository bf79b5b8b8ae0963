/** The device and the program of a measurement, as the calibration records them. */
import type { Device } from '../gpu/device.js';
import type { Calibration } from '../schema/calibration.js';
import { VERSION } from '../version.js';

/** A calibration says at its top which clock timed it. */
export function describeDevice({ description, features, limits }: Device): Calibration['device'] {
  const { clock: _, ...device } = description;
  // WebGPU does not tell the memory; a figure that was not measured is not made up.
  return { ...device, features: [...features], limits: { ...limits }, memoryBytes: null };
}

export const describeProgram = (): Calibration['program'] => ({ name: 'lla-sim', version: VERSION });
