/** Tells whether a file is newer than all that it is made from. */
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';

/** When a file was written last; of a folder the latest of all that is in it, and of its own list of names. */
function changedAt(path) {
  const own = statSync(path);
  if (!own.isDirectory()) return own.mtimeMs;
  return Math.max(own.mtimeMs, ...readdirSync(path).map((name) => changedAt(join(path, name))));
}

/** False where `file` does not exist. */
export function isNewest(file, sources) {
  const made = statSync(file, { throwIfNoEntry: false });
  return made !== undefined && sources.every((source) => changedAt(source) < made.mtimeMs);
}
