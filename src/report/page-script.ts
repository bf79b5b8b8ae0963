/** The program of a report's page, as scripts/page-bundle.mjs left it beside the build. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PACKAGE_ROOT } from '../io/root.js';

/** @throws when the package was not built: that is a defect of the package, not of its user */
export const pageScript = (): string => readFileSync(join(PACKAGE_ROOT, 'dist/page/page.js'), 'utf8').trim();
