/** Where the package lies, for files that it ships beside its modules. */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** The package's folder, with a slash at its end: the nearest above this module that has a package.json. */
export const PACKAGE_ROOT: string = (() => {
  let folder = new URL('.', import.meta.url);
  while (!existsSync(new URL('package.json', folder))) {
    const above = new URL('..', folder);
    if (above.href === folder.href) throw new Error(`no package.json lies above ${import.meta.url}`);
    folder = above;
  }
  return fileURLToPath(folder);
})();
