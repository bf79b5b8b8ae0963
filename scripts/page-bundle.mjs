/**
 * Bundles the programs of the pages for browsers, each one script: of a report (src/report/html/page.ts), with the
 * planner and chart.js, of the planner's page (src/planner/page.ts), with the simulator too, and of the measuring page
 * (src/measure/page.ts), with the kernels and what measures them. A module of Node that slips into them makes this
 * fail.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = fileURLToPath(new URL('..', import.meta.url));

/** The texts of all kernels, in place of the module that reads their files. */
const kernelTexts = {
  name: 'kernel-texts',
  setup: ({ onLoad }) =>
    onLoad({ filter: /\/kernels\/files\.ts$/ }, () => {
      const folder = join(root, 'kernels');
      const files = readdirSync(folder, { recursive: true }).filter((file) => file.endsWith('.wgsl'));
      const texts = Object.fromEntries(
        files.sort().map((file) => [basename(file), readFileSync(join(folder, file), 'utf8')]),
      );
      return {
        contents: `const texts = new Map(Object.entries(${JSON.stringify(texts)}));
          export const hasKernelFile = (file) => texts.has(file);
          export const readKernelFile = (file) => {
            const text = texts.get(file);
            if (text === undefined) throw new Error(\`there is no kernel file \${file}\`);
            return text;
          };`,
        loader: 'js',
      };
    }),
};

/** Requests of a trace are read from its file: a page has none, and its settings name none. */
const withoutTraces = {
  name: 'without-traces',
  setup: ({ onLoad }) =>
    onLoad({ filter: /\/src\/serving\/workload\/trace\.ts$/ }, () => ({
      contents: `const none = () => { throw new Error('a page reads no trace'); };
        export { none as observedLengths, none as summarise, none as TraceSource };`,
      loader: 'js',
    })),
};

/** Recorded depths are read from a file, too: a page says where they can be asked for. */
const withoutFilesOfDepths = {
  name: 'without-files-of-depths',
  setup: ({ onLoad }) =>
    onLoad({ filter: /\/src\/plan\/ask\/depth-trace\.ts$/ }, () => ({
      contents: `import { show, UserError } from '../../errors.js';
        export const readDepthTrace = (path) => {
          throw new UserError('this page has no file ' + show(path), 'ask on the command line: --depth FILE.jsonl');
        };
        export const recordedShares = readDepthTrace;`,
      resolveDir: join(root, 'src/plan/ask'),
      loader: 'js',
    })),
};

/** zod brings its messages in all languages, of which a page uses English. */
const inEnglish = {
  name: 'in-english',
  setup: ({ onLoad }) =>
    onLoad({ filter: /\/zod\/v4\/locales\/index\.js$/ }, () => ({ contents: 'export {};', loader: 'js' })),
};

/**
 * zod and the kernels' texts of the planner's page are in its second script (src/planner/later.ts), and taken from
 * there when they are needed.
 */
const takenLater = {
  name: 'taken-later',
  setup: ({ onResolve, onLoad }) => {
    onResolve({ filter: /^zod$/ }, () => ({ path: 'zod', namespace: 'later' }));
    onLoad({ filter: /.*/, namespace: 'later' }, () => ({
      contents: 'export const z = globalThis.later.z;',
      loader: 'js',
    }));
    onLoad({ filter: /\/kernels\/files\.ts$/ }, () => ({
      contents: `export const hasKernelFile = (file) => globalThis.later.kernels.hasKernelFile(file);
        export const readKernelFile = (file) => globalThis.later.kernels.readKernelFile(file);`,
      loader: 'js',
    }));
  },
};

/**
 * The planner's page's two scripts, as pageBundle() gives that of a report: what the first answer needs, and the rest.
 */
export async function plannerBundle() {
  const [first, later] = await Promise.all([
    pageBundle('src/planner/page.ts', [takenLater]),
    pageBundle('src/planner/later.ts'),
  ]);
  return { first: first.text.trim(), later: later.text.trim(), inputs: [...first.inputs, ...later.inputs] };
}

/** The measuring page's program, as pageBundle() gives that of a report. */
export const measureBundle = () => pageBundle('src/measure/page.ts');

/**
 * @param entry the program's first module
 * @returns the script's text, safe inside a script element, and the paths of all that is in it
 */
export async function pageBundle(entry = 'src/report/html/page.ts', plugins = []) {
  const result = await build({
    absWorkingDir: root,
    entryPoints: [entry],
    plugins: [...plugins, kernelTexts, withoutTraces, withoutFilesOfDepths, inEnglish],
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
