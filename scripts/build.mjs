/**
 * Builds dist/: modules and declarations by tsc (the library), and the command line in dist/bin/ by esbuild (bundleCommands).
 * The program of a report's page is one file for browsers, dist/page/page.js (page-bundle.mjs).
 * dist/bin/ lies as deep as the modules that find kernels/ and calibrations/ relative to themselves.
 */
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { pageBundle } from './page-bundle.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');

/** What all bundles of the command line share. Packages stay outside. */
const BUNDLED = {
  outdir: `${root}dist/bin`,
  bundle: true,
  packages: 'external',
  platform: 'node',
  target: 'node20.19',
  format: 'esm',
  minifyWhitespace: true,
  minifySyntax: true,
  logLevel: 'warning',
};

/** A module's path in src/, without its ending. */
const sourceOf = ({ resolveDir, path }) => relative(`${root}src`, join(resolveDir, path)).replace(/\.js$/, '');

/** The library's errors serve all bundles, since an error is told by its class. */
const sharedErrors = {
  name: 'shared-errors',
  setup: ({ onResolve }) => onResolve({ filter: /\/errors\.js$/ }, (imported) => (sourceOf(imported) === 'errors' ? { path: '../errors.js', external: true } : undefined)),
};

/** Leaves out what is imported when it is needed, and notes it in `needed`: the source's path by the file's name. */
const lazyImports = (needed) => ({
  name: 'lazy-imports',
  setup: ({ onResolve }) =>
    onResolve({ filter: /^\./ }, (imported) => {
      if (imported.kind !== 'dynamic-import') return undefined;
      const source = sourceOf(imported);
      const name = source.replaceAll('/', '-');
      needed.set(name, `${root}src/${source}.ts`);
      return { path: `./${name}.js`, external: true };
    }),
});

/** The entry and all that `plan` needs are one file, since loading thirty small ones costs a fifth of a cold plan. What is loaded when needed shares chunks. */
async function bundleCommands() {
  const needed = new Map();
  await build({ ...BUNDLED, entryPoints: [`${root}src/cli.ts`], plugins: [sharedErrors, lazyImports(needed)] });
  await build({ ...BUNDLED, entryPoints: Object.fromEntries(needed), splitting: true, chunkNames: '[name]-[hash]', plugins: [sharedErrors] });
  chmodSync(`${root}dist/bin/cli.js`, 0o755);
}

rmSync(`${root}dist`, { recursive: true, force: true });
execFileSync(process.execPath, [tsc, '-p', `${root}tsconfig.build.json`], { stdio: 'inherit' });
await bundleCommands();
mkdirSync(`${root}dist/page`);
writeFileSync(`${root}dist/page/page.js`, await pageBundle());
