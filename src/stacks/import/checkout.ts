/** Checkouts of the repositories that hold tables. */
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { UserError, show } from '../../errors.js';
import { displayPath } from '../../io/files.js';

const isFolder = (path: string): boolean => statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;

/** Names of the folders in a folder, in order; none where it is none. */
export const foldersIn = (path: string): string[] =>
  isFolder(path)
    ? readdirSync(path, { withFileTypes: true })
        .filter((entry) => entry.isDirectory())
        .map((entry) => entry.name)
        .sort()
    : [];

/**
 * The folder of a checkout where its tables lie.
 * @throws UserError where it is no checkout of this repository
 */
export function tablesOf(checkout: string, repository: string, place: string): string {
  const root = join(checkout, place);
  if (!isFolder(root))
    throw new UserError(
      `${show(displayPath(checkout))} is no checkout of ${repository}: it lacks ${place}`,
      `clone https://github.com/${repository} and name its folder`,
    );
  return root;
}

/**
 * Refuses a GPU that a checkout, or the catalogue, does not know.
 * @param catalogue devices of the catalogue by folder
 * @param what is missing, such as `profiles of`
 */
export function checkGpu(root: string, gpu: string, catalogue: Readonly<Record<string, string>>, what: string): void {
  const there = foldersIn(root);
  const known = Object.keys(catalogue).filter((id) => there.includes(id));
  if (!known.includes(gpu))
    throw new UserError(
      `the checkout has no ${what} ${show(gpu)} that the catalogue knows`,
      known.length > 0 ? `write --gpu with one of ${known.join(', ')}` : 'check that it is a complete checkout',
    );
}

/** @throws UserError for a table that lies elsewhere, which a checkout without Git LFS only points to */
export function refusePointer(text: string, subject: string): void {
  if (text.startsWith('version https://git-lfs'))
    throw new UserError(`${subject} is a Git LFS pointer, not the table`, 'fetch it: git lfs pull, in the checkout');
}

/** @throws UserError for a table that lacks one of these columns */
export function requireColumns(known: readonly string[], columns: readonly string[], subject: string): void {
  const missing = columns.find((name) => !known.includes(name));
  if (missing !== undefined)
    throw new UserError(
      `${subject} lacks the column ${show(missing)}`,
      `its columns are ${show(known.join(', '))}; check that it is a table of this kind`,
    );
}
