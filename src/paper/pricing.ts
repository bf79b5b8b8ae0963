/** The device that the paper measured on: an H200, by its datasheet or by a calibration of one. */
import { calibrationPricer } from '../cost/pricers.js';
import { deviceOfAdapter, findDevice } from '../devices/find.js';
import { UserError, show } from '../errors.js';
import { staleKernels } from '../plan/ask.js';
import { loadCalibration } from '../plan/calibrations.js';
import { datasheetDevice, type PaperDevice } from './model.js';

export const PAPER_DEVICE = 'h200';

/**
 * The paper's device.
 * @param calibrationFile null: the datasheet alone
 * @throws UserError when the file is no calibration, or was measured on another device
 */
export async function paperDevice(calibrationFile: string | null): Promise<PaperDevice> {
  const datasheet = datasheetDevice(findDevice(PAPER_DEVICE));
  if (calibrationFile === null) return datasheet;
  const loaded = await loadCalibration(calibrationFile);
  const { file, calibration } = loaded;
  const { description, software, limits } = calibration.device;
  if (software || deviceOfAdapter(description)?.id !== datasheet.spec.id) {
    throw new UserError(
      `${show(file)} was measured on ${software ? `a software adapter (${description})` : description} and cannot price the paper's ${datasheet.spec.name}`,
      'leave --calibration out to compare with the datasheet, or measure on an H200 with lla-sim calibrate',
    );
  }
  const stale = await staleKernels(loaded);
  return {
    ...datasheet,
    choice: { ...datasheet.choice, calibration: { file, adapter: description, software } },
    pricer: calibrationPricer(calibration, { stale: new Set(stale), link: datasheet.spec.interconnect, source: file }),
    bindingBytes: limits['maxStorageBufferBindingSize'] ?? Infinity,
    notes: stale.length > 0 ? [`${file} is stale for ${stale.join(', ')}: the kernels have changed since; they are priced by roofline until it is measured again (lla-sim calibrate)`] : [],
  };
}
