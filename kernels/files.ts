/**
 * The WGSL files as they lie on disk. The bundle of a page has a list of their texts in place of this module
 * (scripts/page-bundle.mjs), so it is the only one of the kernels that knows Node.
 */
import { join } from 'node:path';
import { readdirSync, readFileSync } from 'node:fs';
import { PACKAGE_ROOT } from '../src/io/root.js';
import { filesByName } from './names.js';

export const KERNEL_DIRECTORY = join(PACKAGE_ROOT, 'kernels');

let own: ReadonlyMap<string, string> | undefined;
const ownFiles = (): ReadonlyMap<string, string> =>
  (own ??= filesByName(readdirSync(KERNEL_DIRECTORY, { recursive: true, encoding: 'utf8' })));

/** Whether the program has a WGSL file of this name. */
export const hasKernelFile = (file: string): boolean => ownFiles().has(file);

/** The text of one of this program's WGSL files, by its name. */
export function readKernelFile(file: string): string {
  const path = ownFiles().get(file);
  if (path === undefined) throw new Error(`there is no kernel file ${file}`);
  return readFileSync(join(KERNEL_DIRECTORY, path), 'utf8');
}
