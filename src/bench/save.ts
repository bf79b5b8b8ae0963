/**
 * Writes a file so that a reader sees the old contents or the new, never a part: a calibration is saved after each
 * point.
 */
import { open, rename, rm } from 'node:fs/promises';
import type { Calibration } from '../schema/calibration.js';

export async function writeAtomically(path: string, text: string): Promise<void> {
  const temporary = `${path}.${process.pid}.tmp`;
  try {
    const file = await open(temporary, 'w');
    try {
      await file.writeFile(text);
      // Without it a power cut can leave the new name with no contents.
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

/** `save` for calibrate(): the whole calibration as JSON. */
export const saveTo =
  (path: string) =>
  (calibration: Calibration): Promise<void> =>
    writeAtomically(path, `${JSON.stringify(calibration, null, 1)}\n`);
