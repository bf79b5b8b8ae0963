/**
 * Bundles the program of a report's page (src/report/html/page.ts) for browsers: the planner and chart.js in one
 * script. A module of Node that slips into the planner's pure part makes this fail.
 */
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = fileURLToPath(new URL('..', import.meta.url));

/** @returns the script's text, safe inside a script element, and the paths of all that is in it */
export async function pageBundle() {
  const result = await build({
    absWorkingDir: root,
    entryPoints: ['src/report/html/page.ts'],
    bundle: true,
    write: false,
    platform: 'browser',
    target: ['chrome111', 'firefox113', 'safari16.4'],
    format: 'iife',
    minify: true,
    charset: 'ascii',
    legalComments: 'none',
    metafile: true,
    logLevel: 'warning',
  });
  return { text: result.outputFiles[0].text, inputs: Object.keys(result.metafile.inputs) };
}
