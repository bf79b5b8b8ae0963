/** Finding and reading calibration files. */
import { closeSync, openSync, readSync, readdirSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { UserError, show } from '../../errors.js';
import { displayPath, readTextFile } from '../../io/files.js';
import { checkedBy } from '../../io/issues.js';
import { parseJson } from '../../io/json.js';
import { PACKAGE_ROOT } from '../../io/root.js';
import type { Calibration } from '../../schema/calibration.js';
import { readCalibration } from '../../schema/drift.js';
import type { AdapterIdentity, HostIdentity } from '../../schema/machine.js';

/** Calibrations that come with the package. */
const BUNDLED = join(PACKAGE_ROOT, 'calibrations/');
/** Larger files are no calibrations. */
const MAX_FILE_BYTES = 64 * 2 ** 20;
/** The carried calibration of 823 points holds 47,000. */
const MAX_VALUES = 2_000_000;

export interface LoadedCalibration {
  /** As shown to people: relative to the working directory where that is shorter. */
  readonly file: string;
  readonly calibration: Calibration;
  /** As it was stored: raw. */
  readonly stored: Calibration;
}

/**
 * Reads and checks a calibration.
 * @throws UserError when the file is no calibration of this schema version
 */
export async function loadCalibration(path: string): Promise<LoadedCalibration> {
  const json = parseJson(readTextFile(path, 'calibration', MAX_FILE_BYTES), `calibration ${show(path)}`, {
    maxValues: MAX_VALUES,
    hint: 'write one with lla-sim calibrate',
  });
  const { calibrationSchema } = await import('../../schema/calibration.js');
  const stored = checkedBy(
    calibrationSchema,
    json,
    `calibration ${show(path)} is not a lla-sim calibration of this version`,
    'measure again with lla-sim calibrate',
  );
  // A bundled file is named by its place in the package, wherever that is installed.
  return {
    file: path.startsWith(BUNDLED) ? join('calibrations', basename(path)) : displayPath(path),
    calibration: readCalibration(stored),
    stored,
  };
}

/** Calibration files beside the user (./calibrations) and in the package; the user's come first. */
export function calibrationFiles(): string[] {
  const filesIn = (directory: string): string[] => {
    try {
      const names = readdirSync(directory).filter((name) => name.endsWith('.json'));
      return names.sort().map((name) => join(directory, name));
    } catch {
      return [];
    }
  };
  return [...new Set([...filesIn(join(process.cwd(), 'calibrations')), ...filesIn(BUNDLED)])];
}

/** The first part of a file is enough to tell whose it is: the device stands before the samples. */
const HEAD_BYTES = 4096;

/**
 * The calibration of a hardware device whose adapter description matches, or null. Software adapters never match: their
 * times price no GPU. Files are only skimmed; the one that matches is read and checked.
 */
export async function findCalibration(
  matches: (adapterDescription: string) => boolean,
  notes: string[],
): Promise<LoadedCalibration | null> {
  for (const path of calibrationFiles()) {
    const description = hardwareOf(path);
    if (description === null || !matches(description)) continue;
    try {
      return await loadCalibration(path);
    } catch (error) {
      // Nobody named this file, so it may not stop the plan; but it may not pass in silence either.
      if (!(error instanceof UserError)) throw error;
      notes.push(`left aside: ${error.message}`);
    }
  }
  return null;
}

/**
 * The calibration of the machine at hand: the first of this machine, else the first of another one with such an
 * adapter, else null. A damaged file that nobody named is skipped.
 */
export async function calibrationHere(adapter: AdapterIdentity, host: HostIdentity): Promise<LoadedCalibration | null> {
  const { isSameAdapter, otherMachine } = await import('../../schema/machine.js');
  let elsewhere: LoadedCalibration | null = null;
  for (const path of calibrationFiles()) {
    try {
      if (!readHead(path).includes('"lla-sim/calibration"')) continue;
      const loaded = await loadCalibration(path);
      if (!isSameAdapter(adapter, loaded.calibration.device)) continue;
      if (otherMachine(adapter, host, loaded.calibration) === null) return loaded;
      elsewhere ??= loaded;
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
    }
  }
  return elsewhere;
}

/** The adapter description of a hardware calibration, from the file's first bytes; null for everything else. */
function hardwareOf(path: string): string | null {
  const head = readHead(path);
  if (!head.includes('"lla-sim/calibration"') || /"software":\s*true/.test(head)) return null;
  const text = /"description":\s*("(?:[^"\\]|\\.)*")/.exec(head)?.[1];
  if (text === undefined) return null;
  try {
    return JSON.parse(text) as string;
  } catch {
    return null;
  }
}

function readHead(path: string): string {
  try {
    if (!statSync(path).isFile()) return '';
    const file = openSync(path, 'r');
    try {
      const buffer = Buffer.alloc(HEAD_BYTES);
      return buffer.toString('utf8', 0, readSync(file, buffer, 0, HEAD_BYTES, 0));
    } finally {
      closeSync(file);
    }
  } catch {
    return '';
  }
}
