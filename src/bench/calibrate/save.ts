/** Writing a calibration while it is measured: the file can be read again whenever and however the program ends. */
import { calibrationSchema, type Calibration } from '../../schema/calibration.js';
import { writeWhole } from '../../io/write.js';

/** Saving takes at most this share of the time that is measured. */
const SAVING_SHARE = 0.1;

/**
 * Writes a calibration; a defect when it is none that could be read again.
 * @throws UserError when the file cannot be written; the old one is unharmed then
 */
export function writeCalibration(path: string, calibration: Calibration): void {
  const checked = calibrationSchema.safeParse(calibration);
  if (!checked.success) {
    const [issue] = checked.error.issues;
    throw new Error(
      `a calibration that cannot be read again is not written: ${issue?.path.join('.')} ${issue?.message}`,
    );
  }
  writeWhole(path, `${JSON.stringify(calibration, null, 1)}\n`, 'calibration');
}

/**
 * `save` for calibrate(). Writes the whole calibration, at once where it must be, otherwise unless writing would take
 * more than a tenth of the time since it was last written.
 * @param now seconds
 */
export function saveTo(
  path: string,
  now = (): number => performance.now() / 1e3,
): (calibration: Calibration, must: boolean) => void {
  let [ended, took] = [-Infinity, 0];
  return (calibration, must) => {
    const began = now();
    if (!must && (began - ended) * SAVING_SHARE < took) return;
    writeCalibration(path, calibration);
    ended = now();
    took = ended - began;
  };
}
