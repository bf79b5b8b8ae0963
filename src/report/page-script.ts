/** The program of a report's page, as scripts/page-bundle.mjs left it beside the build. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** src/report/, dist/report/ and the bundle in dist/bin/ all lie two levels below the package root. */
const PAGE_SCRIPT = new URL('../../dist/page/page.js', import.meta.url);

/** @throws when the package was not built: that is a defect of the package, not of its user */
export const pageScript = (): string => readFileSync(fileURLToPath(PAGE_SCRIPT), 'utf8').trim();
