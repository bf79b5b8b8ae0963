/** The device that the paper measured on: an H200, by its datasheet or by a calibration of one. */
import { calibrationPricer } from '../cost/pricers.js';
import { deviceOfAdapter, findDevice } from '../devices/find.js';
import { UserError, show } from '../errors.js';
import type { Sources } from '../plan/ask/prepare.js';
import { staleKernels } from '../plan/ask/on-disk.js';
import { loadCalibration } from '../plan/ask/calibrations.js';
import { datasheetDevice, type PaperDevice } from './model.js';

const PAPER_DEVICE = 'h200';

/** The paper's device by its datasheet. */
const byDatasheet = (): PaperDevice => datasheetDevice(findDevice(PAPER_DEVICE));

/**
 * The paper's device.
 * @param calibrationFile null: the datasheet alone
 * @throws UserError when the file is no calibration, or was measured on another device
 */
export async function paperDevice(calibrationFile: string | null): Promise<PaperDevice> {
  if (calibrationFile === null) return byDatasheet();
  const loaded = await loadCalibration(calibrationFile);
  const { file, calibration } = loaded;
  if (!ofPaperDevice(calibration.device)) {
    const { description, software } = calibration.device;
    throw new UserError(
      `${show(file)} was measured on ${software ? `a software adapter (${description})` : description} and cannot ` +
        `price the paper's ${findDevice(PAPER_DEVICE).name}`,
      'leave --calibration out to compare with the datasheet, or measure on an H200 with lla-sim calibrate',
    );
  }
  return measuredDevice({ file, content: calibration, stale: await staleKernels(loaded) });
}

/** The paper's device as a report prices it: from the report's own calibration where that is of such a device. */
export function paperDeviceOf({ calibration }: Sources): PaperDevice {
  return calibration && ofPaperDevice(calibration.content.device) ? measuredDevice(calibration) : byDatasheet();
}

const ofPaperDevice = (measured: { readonly description: string; readonly software: boolean }): boolean =>
  !measured.software && deviceOfAdapter(measured.description)?.id === PAPER_DEVICE;

function measuredDevice({ file, content, stale }: NonNullable<Sources['calibration']>): PaperDevice {
  const datasheet = byDatasheet();
  return {
    ...datasheet,
    choice: {
      ...datasheet.choice,
      calibration: { file, adapter: content.device.description, software: content.device.software },
    },
    pricer: calibrationPricer(content, { stale: new Set(stale), link: datasheet.spec.interconnect, source: file }),
    bindingBytes: content.device.limits['maxStorageBufferBindingSize'] ?? Infinity,
    notes:
      stale.length > 0
        ? [
            `${file} is stale for ${stale.join(', ')}: these kernels, or their model, have changed since; they are ` +
              'priced by roofline until it is measured again (lla-sim calibrate)',
          ]
        : [],
  };
}
