/** The device that a calibration was measured on, as a plan needs it: in Node and in a page. */
import { memoryOf, type DeviceSpec } from '../../devices/catalogue.js';
import { deviceOfAdapter, findDevice } from '../../devices/find.js';
import { show, UserError } from '../../errors.js';
import type { Calibration } from '../../schema/calibration.js';
import type { DeviceChoice } from '../types.js';

/** A calibration and how it is called. */
export interface NamedCalibration {
  readonly file: string;
  readonly calibration: Calibration;
}

export const describeCalibration = (loaded: NamedCalibration | null): DeviceChoice['calibration'] =>
  loaded && {
    file: loaded.file,
    adapter: loaded.calibration.device.description,
    software: loaded.calibration.device.software,
  };

/**
 * @param vramBytes memory that the user states, or null
 * @param deviceName the user's word for the device, where there is one: it has to be the measured one
 * @throws UserError for another device than the measured one, and for one of unknown memory
 */
export function measuredDevice(
  loaded: NamedCalibration,
  vramBytes: number | null,
  deviceName?: string,
): { device: DeviceChoice; spec: DeviceSpec | null } {
  const { device: measured, host } = loaded.calibration;
  const named = deviceName === undefined ? null : findDevice(deviceName);
  const spec = measured.software ? null : (deviceOfAdapter(measured.description) ?? null);
  if (named && measured.software) {
    throw new UserError(
      `${show(loaded.file)} was measured on a software adapter (${measured.description}) and cannot price ` +
        `${named.name}`,
      'leave --calibration out, or measure on that device with lla-sim calibrate',
    );
  }
  if (named && named.id !== spec?.id)
    throw new UserError(
      `${show(loaded.file)} was measured on ${measured.description}, not on ${named.name}`,
      'leave --device or --calibration out',
    );
  // A software adapter's memory is its host's.
  const memory =
    vramBytes ??
    (spec ? memoryOf(spec) : null) ??
    measured.memoryBytes ??
    (measured.software ? host.memoryBytes : null);
  if (memory === null)
    throw new UserError(`${show(loaded.file)} does not say how much memory ${measured.description} has`, 'add --vram');
  return {
    device: {
      id: spec?.id ?? null,
      // A software adapter computes on a processor, whose times they are.
      name:
        spec?.name ??
        (measured.software && host.cpu !== 'unknown' ? `${measured.description} on ${host.cpu}` : measured.description),
      vramBytes: memory,
      calibration: describeCalibration(loaded),
    },
    spec,
  };
}
