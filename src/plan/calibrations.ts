/** Finding and reading calibration files. */
import { readFileSync, readdirSync, statSync } from 'node:fs';
import { basename, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { printable, UserError, show } from '../errors.js';
import type { Calibration } from '../schema/calibration.js';

/** Calibrations that come with the package. */
const BUNDLED = fileURLToPath(new URL('../../calibrations/', import.meta.url));
/** Larger files are no calibrations. */
const MAX_FILE_BYTES = 64 * 2 ** 20;

export interface LoadedCalibration {
  /** As shown to people: relative to the working directory where that is shorter. */
  readonly file: string;
  readonly calibration: Calibration;
}

/** A path as shown to people: bundled files by their place in the package, others relative to the working directory. */
export function displayPath(path: string): string {
  if (path.startsWith(BUNDLED)) return join('calibrations', basename(path));
  const near = relative(process.cwd(), path);
  return printable(near.startsWith('..') ? path : near);
}

/** Reads JSON or text from outside, with the usual mistakes answered in one line. */
export function readTextFile(path: string, subject: string, maxBytes: number): string {
  try {
    const size = statSync(path);
    if (size.isDirectory()) throw new UserError(`${subject} ${show(path)} is a directory`, 'name a file');
    if (!size.isFile()) throw new UserError(`${subject} ${show(path)} is not a regular file`, 'name a file');
    if (size.size > maxBytes) throw new UserError(`${subject} ${show(path)} has ${size.size} bytes, more than ${maxBytes}`, 'check that it is the right file');
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (error instanceof UserError) throw error;
    const code = (error as NodeJS.ErrnoException).code;
    const reason = code === 'ENOENT' ? 'does not exist' : code === 'EACCES' ? 'may not be read' : `cannot be read (${String(code)})`;
    throw new UserError(`${subject} ${show(path)} ${reason}`, 'check the path');
  }
}

/**
 * Reads and checks a calibration.
 * @throws UserError when the file is no calibration of this schema version
 */
export async function loadCalibration(path: string): Promise<LoadedCalibration> {
  const text = readTextFile(path, 'calibration', MAX_FILE_BYTES);
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw new UserError(`calibration ${show(path)} is not JSON`, 'write one with lla-sim calibrate');
  }
  const { calibrationSchema } = await import('../schema/calibration.js');
  const parsed = calibrationSchema.safeParse(json);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw new UserError(`calibration ${show(path)} is not a lla-sim calibration of this version: ${issue?.path.join('.') || 'file'}: ${issue?.message}`, 'measure again with lla-sim calibrate');
  }
  return { file: displayPath(path), calibration: parsed.data };
}

/** Calibration files beside the user (./calibrations) and in the package; the user's come first. */
export function calibrationFiles(): string[] {
  const seen = new Set<string>();
  const files: string[] = [];
  for (const directory of [join(process.cwd(), 'calibrations'), BUNDLED]) {
    let names: string[];
    try {
      names = readdirSync(directory).filter((n) => n.endsWith('.json')).sort();
    } catch {
      continue;
    }
    for (const name of names) {
      const path = join(directory, name);
      if (!seen.has(path)) files.push(path);
      seen.add(path);
    }
  }
  return files;
}

/** The first part of a file is enough to tell whose it is: the device stands before the samples. */
const HEAD_BYTES = 4096;

/**
 * The calibration of a hardware device whose adapter description matches, or null. Software adapters never match: their
 * times price no GPU. Files are only skimmed; the one that matches is read and checked.
 */
export async function findCalibration(matches: (adapterDescription: string) => boolean): Promise<LoadedCalibration | null> {
  for (const path of calibrationFiles()) {
    let head: string;
    try {
      head = readFileSync(path, 'utf8').slice(0, HEAD_BYTES);
    } catch {
      continue;
    }
    if (!head.includes('"lla-sim/calibration"') || /"software":\s*true/.test(head)) continue;
    const description = /"description":\s*("(?:[^"\\]|\\.)*")/.exec(head)?.[1];
    if (description !== undefined && matches(JSON.parse(description) as string)) return loadCalibration(path);
  }
  return null;
}
