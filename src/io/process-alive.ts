/** Whether a process lives, and a name for it that another process with the same number later does not have. */
import { readFileSync } from 'node:fs';

/** Whether a process with this number lives on this machine. */
export function isAlive(pid: number): boolean {
  if (!Number.isSafeInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: it lives, and is somebody else's.
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/**
 * When a process began, in the system's own words: numbers of processes are used again. Null where the system does not
 * say (it is read from /proc) or the process does not live.
 */
export function beginningOf(pid: number): string | null {
  try {
    // The name of the program, in brackets, may hold blanks; the beginning is field 22 (proc(5)).
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? null;
  } catch {
    return null;
  }
}
