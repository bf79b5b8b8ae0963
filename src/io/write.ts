/**
 * Writing files. A reader sees the old contents or the new, never a part: contents are written beside the file and
 * renamed. A symbolic link stays a link, and its target is rewritten. A device or a pipe is written to, never replaced.
 */
import {
  accessSync,
  closeSync,
  constants,
  copyFileSync,
  fchmodSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { UserError, show } from '../errors.js';
import { isAlive } from './process-alive.js';

/** Meaning of a system call's error, and its remedy. */
const REASONS: Readonly<Record<string, readonly [reason: string, hint: string]>> = {
  ENOSPC: ['no space is left on its device', 'free space, or name another place'],
  EDQUOT: ['the quota is used up', 'free space, or name another place'],
  EACCES: ['permission is denied', 'name a place that you may write to'],
  EPERM: ['permission is denied', 'name a place that you may write to'],
  EROFS: ['its file system is read-only', 'name another place'],
  ENOENT: ['its folder does not exist', 'make the folder, or name another place'],
  ENOTDIR: ['a part of its path is not a folder', 'correct the path'],
  EISDIR: ['it is a folder', 'name a file'],
  EEXIST: ['a file of that name exists where a folder is needed', 'name another place'],
  ELOOP: ['its symbolic links lead in a circle', 'correct the links'],
  ENAMETOOLONG: ['its name is too long', 'choose a shorter name'],
};

/** The error of something that could not be written, in one line. Defects pass through. */
export function cannotWrite(subject: string, path: string | null, error: unknown): unknown {
  const code = (error as NodeJS.ErrnoException | null)?.code;
  if (error instanceof UserError || code === undefined) return error;
  const [reason, hint] = REASONS[code] ?? [`the system says ${code}`, 'check the path and its permissions'];
  return new UserError(`${subject}${path === null ? '' : ` ${show(path)}`} cannot be written: ${reason}`, hint);
}

/**
 * Makes a folder and those above it, one by one: where a file system takes no folders, as /proc, Node's own recursive
 * way never ends. Nothing is made where the nearest folder that exists may not be written to.
 * @throws UserError when it cannot be made
 */
export function makeFolder(path: string, subject: string): void {
  const missing: string[] = [];
  let at = resolve(path);
  try {
    for (; !statSync(at, { throwIfNoEntry: false }); at = dirname(at)) missing.unshift(at);
    if (!statSync(at).isDirectory())
      throw Object.assign(new Error('no folder'), { code: missing.length > 0 ? 'ENOTDIR' : 'EEXIST' });
    if (missing.length > 0) accessSync(at, constants.W_OK | constants.X_OK);
    // Another process, as of a shard, may make the same one in between.
    for (const folder of missing) if (!statSync(folder, { throwIfNoEntry: false })?.isDirectory()) mkdirSync(folder);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw cannotWrite(subject, path, error);
    throw new UserError(
      `${subject} ${show(path)} cannot be written: ${show(at)} takes no new folders`,
      'name another place',
    );
  }
}

export interface Place {
  /** The file itself, behind all links. */
  readonly path: string;
  /** Permissions of the file that is replaced, or null where there is none. */
  readonly mode: number | null;
  /** A device, a pipe or a descriptor: bytes are written to it as it is. */
  readonly stream: boolean;
}

/** Most links that may follow each other, as the kernel has it. */
const MOST_LINKS = 40;

/** Where the bytes of `path` belong. Throws what the system says. */
export function placeOf(path: string): Place {
  let at = resolve(path);
  // Links below /dev and /proc name open descriptors, whose files belong to somebody else.
  if (/^\/(dev|proc)\//.test(at)) return { path: at, mode: null, stream: true };
  for (let links = 0; lstatSync(at, { throwIfNoEntry: false })?.isSymbolicLink(); links++) {
    if (links === MOST_LINKS) throw Object.assign(new Error('too many links'), { code: 'ELOOP' });
    at = resolve(realpathSync(dirname(at)), readlinkSync(at));
  }
  const found = statSync(at, { throwIfNoEntry: false });
  if (found?.isDirectory()) throw Object.assign(new Error('a directory'), { code: 'EISDIR' });
  const stream = found !== undefined && !found.isFile();
  return { path: join(realpathSync(dirname(at)), basename(at)), mode: found ? found.mode & 0o7777 : null, stream };
}

const partialOf = (path: string): string => join(dirname(path), `.${basename(path)}.${process.pid}.partial`);
const PARTIAL = /^\.(.+)\.(\d+)\.partial$/;

/** Removes half-written files that a dead process left for `path`. */
function removeDeadPartials(path: string): void {
  for (const name of readdirSync(dirname(path))) {
    const [, of, pid] = PARTIAL.exec(name) ?? [];
    if (of === basename(path) && !isAlive(Number(pid))) rmSync(join(dirname(path), name), { force: true });
  }
}

/** Contents of a file: text, bytes, or bytes piece by piece, which are made while it is written. */
export type Contents = string | Uint8Array | Iterable<Uint8Array>;

function writeAll(descriptor: number, data: Contents): void {
  const pieces = typeof data === 'string' ? [Buffer.from(data)] : data instanceof Uint8Array ? [data] : data;
  for (const piece of pieces) for (let done = 0; done < piece.length;) done += writeSync(descriptor, piece, done);
}

/** Writes a new file and waits until it is on the disk: else a power cut can leave the new name without contents. */
function writeDurably(path: string, data: Contents, mode: number | null): void {
  const file = openSync(path, 'w');
  try {
    if (mode !== null) fchmodSync(file, mode);
    writeAll(file, data);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

/** Signals that a shell or a system sends to end a program. */
export const END_SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
const ignored = (): void => undefined;

/**
 * Files that are written beside their places and replace them together, or not at all. A signal that arrives in between
 * does not end the program there.
 */
export class Replacement {
  private readonly parts: { readonly partial: string; readonly path: string }[] = [];
  private holding = false;

  private hold(on: boolean): void {
    if (on === this.holding) return;
    this.holding = on;
    for (const name of END_SIGNALS) {
      if (on) process.on(name, ignored);
      else process.removeListener(name, ignored);
    }
  }

  /** Writes contents beside `path`. Throws what the system says; `discard` then removes all that was written. */
  add(path: string, data: Contents): void {
    const place = placeOf(path);
    this.hold(true);
    removeDeadPartials(place.path);
    const partial = partialOf(place.path);
    this.parts.push({ partial, path: place.path });
    writeDurably(partial, data, place.mode);
  }

  /** Everything is on the disk: the files take their places. */
  commit(): void {
    for (let part = this.parts[0]; part; part = this.parts[0]) {
      renameSync(part.partial, part.path);
      this.parts.shift();
    }
    this.hold(false);
  }

  discard(): void {
    for (const { partial } of this.parts.splice(0)) rmSync(partial, { force: true });
    this.hold(false);
  }
}

/**
 * Writes a whole file.
 * @param subject what the path is to the user: `--output`, `calibration`
 * @throws UserError when it cannot be written; what was there before is unharmed then
 */
export function writeWhole(path: string, data: Contents, subject: string): void {
  const replacement = new Replacement();
  try {
    if (placeOf(path).stream) {
      const stream = openSync(path, 'w');
      try {
        writeAll(stream, data);
      } finally {
        closeSync(stream);
      }
      return;
    }
    replacement.add(path, data);
    replacement.commit();
  } catch (error) {
    replacement.discard();
    throw cannotWrite(subject, path, error);
  }
}

/**
 * Copies a file to a free name beside it: `FILE.old`, `FILE.old-2`, ...
 * @returns the name
 * @throws UserError when it cannot be copied
 */
export function keepBeside(path: string): string {
  for (let n = 1; ; n++) {
    const beside = `${path}.old${n === 1 ? '' : `-${n}`}`;
    try {
      copyFileSync(path, beside, constants.COPYFILE_EXCL);
      return beside;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw cannotWrite('a copy of', path, error);
    }
  }
}

/** A full disk takes an empty file, but hardly this much. */
const TRIAL_BYTES = 65_536;

/**
 * Finds out whether a file could be written, before hours are spent on its contents. Leaves nothing behind.
 * @param regular whether only a regular file will do: it is read again, or written many times
 * @throws UserError when it could not
 */
export function checkWritable(path: string, subject: string, regular = false): void {
  const trial = new Replacement();
  try {
    const { stream } = placeOf(path);
    if (stream && regular) throw new UserError(`${subject} ${show(path)} is not a regular file`, 'name a file');
    if (!stream) trial.add(path, new Uint8Array(TRIAL_BYTES));
  } catch (error) {
    throw cannotWrite(subject, path, error);
  } finally {
    trial.discard();
  }
}
