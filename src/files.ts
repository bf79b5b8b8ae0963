/** Files from outside: read with their usual mistakes answered in one line, and named so that they can be printed. */
import { readFileSync, statSync } from 'node:fs';
import { relative } from 'node:path';
import { printable, UserError, show } from './errors.js';

/** A path as shown to people: relative to the working directory where it lies below it, and printable. */
export function displayPath(path: string): string {
  const near = relative(process.cwd(), path);
  return printable(near.startsWith('..') ? path : near);
}

/** Reads JSON or text from outside, with the usual mistakes answered in one line. */
export function readTextFile(path: string, subject: string, maxBytes: number): string {
  try {
    const size = statSync(path);
    if (size.isDirectory()) throw new UserError(`${subject} ${show(path)} is a directory`, 'name a file');
    if (!size.isFile()) throw new UserError(`${subject} ${show(path)} is not a regular file`, 'name a file');
    if (size.size > maxBytes)
      throw new UserError(
        `${subject} ${show(path)} has ${size.size} bytes, more than ${maxBytes}`,
        'check that it is the right file',
      );
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (error instanceof UserError) throw error;
    const code = (error as NodeJS.ErrnoException).code;
    const reason =
      code === 'ENOENT' ? 'does not exist' : code === 'EACCES' ? 'may not be read' : `cannot be read (${String(code)})`;
    throw new UserError(`${subject} ${show(path)} ${reason}`, 'check the path');
  }
}
