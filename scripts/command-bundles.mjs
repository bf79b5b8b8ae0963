/**
 * Bundles the command line: the entry with all that `plan` needs is one file, since loading thirty small ones costs a
 * fifth of a cold plan. What is loaded when needed shares chunks. Packages that are dependencies stay outside; those
 * that only the checkout installs are bundled.
 */
import { chmodSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { nodeCanvas } from './node-canvas.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));

const { dependencies } = JSON.parse(readFileSync(`${root}package.json`, 'utf8'));

/** What all bundles share. */
const BUNDLED = {
  bundle: true,
  external: Object.keys(dependencies),
  platform: 'node',
  target: 'node20.19',
  format: 'esm',
  minifyWhitespace: true,
  minifySyntax: true,
  metafile: true,
  absWorkingDir: root,
  logLevel: 'warning',
};

/** A module's path in the repository, without its ending. */
const sourceOf = ({ resolveDir, path }) => relative(root, join(resolveDir, path)).replace(/\.js$/, '');

/** The library's errors serve all bundles, since an error is told by its class. */
const sharedErrors = {
  name: 'shared-errors',
  setup: ({ onResolve }) =>
    onResolve({ filter: /\/errors\.js$/ }, (imported) =>
      sourceOf(imported) === 'src/errors' ? { path: '../src/errors.js', external: true } : undefined,
    ),
};

/**
 * yargs measures the width of help with Intl.Segmenter, whose set-up costs a tenth of a cold plan; help is plain text,
 * of which characters are counted, as yargs does in browsers.
 */
const plainWidth = {
  name: 'plain-width',
  setup: ({ onResolve, onLoad }) => {
    onResolve({ filter: /^string-width$/ }, ({ path }) => ({ path, namespace: 'plain-width' }));
    onLoad({ filter: /.*/, namespace: 'plain-width' }, () => ({
      contents: 'export default (text) => [...text].length;',
    }));
  },
};

/** Leaves out what is imported when it is needed, and notes it in `needed`: the source's path by the file's name. */
const lazyImports = (needed) => ({
  name: 'lazy-imports',
  setup: ({ onResolve }) =>
    onResolve({ filter: /^\./ }, (imported) => {
      if (imported.kind !== 'dynamic-import') return undefined;
      const source = sourceOf(imported);
      const name = source.replace(/^src\//, '').replaceAll('/', '-');
      needed.set(name, `${root}${source}.ts`);
      return { path: `./${name}.js`, external: true };
    }),
});

/**
 * Writes cli.js and its chunks to `outdir`, which lies beside the library's folder src.
 * @returns paths of all that was bundled, relative to the repository
 */
export async function commandBundles(outdir) {
  const needed = new Map();
  const entry = await build({
    ...BUNDLED,
    outdir,
    entryPoints: [`${root}src/cli.ts`],
    plugins: [sharedErrors, plainWidth, lazyImports(needed)],
  });
  const chunks = await build({
    ...BUNDLED,
    outdir,
    entryPoints: Object.fromEntries(needed),
    splitting: true,
    chunkNames: '[name]-[hash]',
    plugins: [sharedErrors, nodeCanvas],
  });
  chmodSync(join(outdir, 'cli.js'), 0o755);
  return [entry, chunks].flatMap(({ metafile }) => Object.keys(metafile.inputs));
}
