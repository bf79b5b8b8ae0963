/**
 * Builds dist/: modules and declarations by tsc (the library), and the command line as one bundle by esbuild, since
 * loading fifty small modules costs a third of a cold `plan`. Packages stay outside the bundle; commands stay lazy chunks.
 * The program of a report's page is one file for browsers, dist/page/page.js (page-bundle.mjs).
 * dist/bin/ lies as deep as the modules that find kernels/ and calibrations/ relative to themselves.
 */
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { pageBundle } from './page-bundle.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');

rmSync(`${root}dist`, { recursive: true, force: true });
execFileSync(process.execPath, [tsc, '-p', `${root}tsconfig.build.json`], { stdio: 'inherit' });
await build({
  entryPoints: [`${root}src/cli.ts`],
  outdir: `${root}dist/bin`,
  bundle: true,
  splitting: true,
  packages: 'external',
  platform: 'node',
  target: 'node20.19',
  format: 'esm',
  minifyWhitespace: true,
  minifySyntax: true,
  chunkNames: '[name]-[hash]',
  logLevel: 'warning',
});
mkdirSync(`${root}dist/page`);
writeFileSync(`${root}dist/page/page.js`, await pageBundle());
chmodSync(`${root}dist/bin/cli.js`, 0o755);
