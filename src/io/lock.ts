/**
 * A lock on a file that is written for minutes: `FILE.lock` beside it names the process that writes. The lock of a dead
 * process counts as none.
 */
import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { UserError, show } from '../errors.js';
import { beginningOf, isAlive } from './process-alive.js';
import { cannotWrite, placeOf } from './write.js';

/** Contents of a lock file. */
const own = (): string => `${process.pid} ${beginningOf(process.pid) ?? '-'} ${hostname()}\n`;

/** The holder of the lock, in words, or null where no living process holds it. */
function holderOf(text: string): string | null {
  const [pid = '', beginning = '', host = ''] = text.trim().split(' ');
  // A process of another machine cannot be asked.
  if (host !== '' && host !== hostname()) return `process ${pid} on ${host}`;
  if (!isAlive(Number(pid))) return null;
  const today = beginningOf(Number(pid));
  return today !== null && beginning !== '-' && today !== beginning ? null : `process ${pid}`;
}

function read(lock: string): string | null {
  try {
    return readFileSync(lock, 'utf8');
  } catch {
    return null;
  }
}

/** False where there is a lock file already. */
function make(lock: string): boolean {
  try {
    writeFileSync(lock, own(), { flag: 'wx' });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

/** Takes a dead process's lock away, unless somebody else has just done so and made one. */
function takeAway(lock: string, seen: string): void {
  const aside = `${lock}.${process.pid}.dead`;
  try {
    renameSync(lock, aside);
    if (read(aside) === seen) rmSync(aside, { force: true });
    else renameSync(aside, lock);
  } catch {
    // Somebody else was faster.
  }
}

/**
 * Locks a file until the returned function is called or this process dies.
 * @throws UserError when another process that lives holds the lock, or when there can be no lock file
 */
export function lockFile(path: string, subject: string): () => void {
  let lock: string;
  try {
    // Whatever links lead to a file, it has one lock.
    lock = `${placeOf(path).path}.lock`;
    while (!make(lock)) {
      const text = read(lock);
      if (text === null) continue;
      const holder = holderOf(text);
      if (holder !== null)
        throw new UserError(
          `${subject} ${show(path)} is being written by ${holder}`,
          `wait for it, or name another file (if it does not run any more, remove ${show(lock)})`,
        );
      takeAway(lock, text);
    }
  } catch (error) {
    throw cannotWrite(subject, path, error);
  }
  return () => {
    if (read(lock) === own()) rmSync(lock, { force: true });
  };
}
