/**
 * Builds dist/: modules and declarations by tsc (the library), and the command line in dist/bin/ by esbuild
 * (command-bundles.mjs). The program of a report's page is one file for browsers, dist/page/page.js (page-bundle.mjs);
 * the planner's page is dist/plan.html, the measuring page dist/measure.html. dist/LICENCES.txt holds the licences of
 * the packages in both. dist/src/ and dist/kernels/ lie as src/ and kernels/ do.
 *
 * `--checked`: the types have been checked just now. `--if-changed`: nothing is done where dist/ is newer than all that
 * it is made from. The first npx after npm ci prepares the package once more, and says nothing meanwhile.
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { commandBundles } from './command-bundles.mjs';
import { licencesOf } from './licences.mjs';
import { isNewest } from './newest.mjs';
import { measureBundle, pageBundle, plannerBundle } from './page-bundle.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const madeFrom = [
  'src',
  'kernels',
  'scripts',
  'calibrations',
  'package.json',
  'package-lock.json',
  'tsconfig.json',
  'tsconfig.build.json',
];
// The licences are written last.
const last = `${root}dist/LICENCES.txt`;
const sources = madeFrom.map((name) => `${root}${name}`);
if (process.argv.includes('--if-changed') && isNewest(last, sources)) process.exit();

const tsc = join(dirname(createRequire(import.meta.url).resolve('typescript-7/package.json')), 'bin/tsc');
rmSync(`${root}dist`, { recursive: true, force: true });
const checked = process.argv.includes('--checked') ? ['--noCheck'] : [];
execFileSync(process.execPath, [tsc, '-p', `${root}tsconfig.build.json`, ...checked], { stdio: 'inherit' });
const bundled = await commandBundles(`${root}dist/bin`);
mkdirSync(`${root}dist/page`);
const page = await pageBundle();
writeFileSync(`${root}dist/page/page.js`, page.text);
const measure = await measureBundle();
const { measureDocument } = await import('../dist/src/measure/document.js');
const carried = (name) => JSON.parse(readFileSync(`${root}calibrations/${name}.json`, 'utf8'));
writeFileSync(
  `${root}dist/measure.html`,
  measureDocument(measure.text.trim(), { attainable: carried('attainable'), servers: carried('servers') }),
);
const planner = await plannerBundle();
const { plannerDocument } = await import('../dist/src/planner/document.js');
const { judgedGroups, knownStacks } = await import('../dist/src/plan/ask/stacks.js');
const { claimRows } = await import('../dist/src/ranking/claim-rows.js');
writeFileSync(`${root}dist/plan.html`, plannerDocument(planner, await knownStacks(), judgedGroups(), claimRows()));
writeFileSync(last, licencesOf([...bundled, ...page.inputs, ...measure.inputs, ...planner.inputs]));
