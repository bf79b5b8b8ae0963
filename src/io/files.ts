/** Files from outside: read with their usual mistakes answered in one line, and named so that they can be printed. */
import { closeSync, constants, fstatSync, openSync, readSync, statSync, type Stats } from 'node:fs';
import { relative } from 'node:path';
import { printable, UserError, show } from '../errors.js';

/** A path as shown to people: relative to the working directory where it lies below it, and printable. */
export function displayPath(path: string): string {
  const near = relative(process.cwd(), path);
  return printable(near === '' ? '.' : near.startsWith('..') ? path : near);
}

/** Bytes read at once. */
const PIECE_BYTES = 2 ** 20;

/**
 * Reads a text file from outside, a UTF-8 byte order mark included where there is one.
 * @throws UserError, one line, for what is missing, no regular file, longer than `maxBytes` or not UTF-8
 */
export function readTextFile(path: string, subject: string, maxBytes: number): string {
  try {
    return decodeText(readBytes(path, `${subject} ${show(path)}`, maxBytes), `${subject} ${show(path)}`);
  } catch (error) {
    if (error instanceof UserError) throw error;
    const code = (error as NodeJS.ErrnoException).code;
    const reason =
      code === 'ENOENT' ? 'does not exist' : code === 'EACCES' ? 'may not be read' : `cannot be read (${String(code)})`;
    throw new UserError(`${subject} ${show(path)} ${reason}`, 'check the path');
  }
}

/** A file's bytes, at most `maxBytes`: its size says nothing where a system makes the contents up as they are read. */
function readBytes(path: string, subject: string, maxBytes: number): Buffer {
  // A device is not even opened.
  requireFile(statSync(path), subject);
  // Without O_NONBLOCK, opening a pipe that replaced the file would wait without end.
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const stats = fstatSync(fd);
    requireFile(stats, subject);
    if (stats.size > maxBytes) throw tooLong(subject, maxBytes);
    const pieces: Buffer[] = [];
    let total = 0;
    for (;;) {
      const piece = Buffer.allocUnsafe(Math.min(PIECE_BYTES, maxBytes + 1 - total));
      const count = readSync(fd, piece, 0, piece.length, null);
      if (count === 0) return Buffer.concat(pieces, total);
      total += count;
      if (total > maxBytes) throw tooLong(subject, maxBytes);
      pieces.push(piece.subarray(0, count));
    }
  } finally {
    closeSync(fd);
  }
}

/** Fills `target` from a place of an open file. @returns bytes of it; fewer where the file ends */
export function readAt(fd: number, target: Uint8Array, position: number): number {
  let done = 0;
  while (done < target.length) {
    const count = readSync(fd, target, done, target.length - done, position + done);
    if (count === 0) break;
    done += count;
  }
  return done;
}

function requireFile(stats: Stats, subject: string): void {
  if (stats.isDirectory()) throw new UserError(`${subject} is a directory`, 'name a file');
  if (!stats.isFile()) throw new UserError(`${subject} is not a regular file`, 'name a file');
}

const tooLong = (subject: string, maxBytes: number): UserError =>
  new UserError(`${subject} has more than ${maxBytes} bytes`, 'check that it is the right file');

function decodeText(bytes: Buffer, subject: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    const utf16 = (bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff);
    throw new UserError(`${subject} is ${utf16 ? 'UTF-16' : 'not UTF-8'}`, 'save it as UTF-8');
  }
}
