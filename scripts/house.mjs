/**
 * What there is to read and to keep, in figures: lines, tokens, large files and folders, long lines, unused exports,
 * words that nobody understands at first, modules of a cold plan. `npm run house` prints them beside what they should
 * be; `--check` prints what must hold and does not, and exits with 1. Run `npm run build` before.
 */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const root = fileURLToPath(new URL('..', import.meta.url));
const COLUMNS = 120;
const FILE_LINES = 400;
const FOLDER_FILES = 20;
/** Words of earlier versions, each with the one that the field has for it. A name in code may be what it stands for. */
const WORDS = {
  'told anew': 'updated',
  'hardly hang': 'rarely used',
  'masses, one a token': 'one score per token',
  'costs that way': 'costs on that path',
  'as good as wanted': 'within the target',
  'form no law': 'are not fitted',
  'and surer ones': 'and narrower intervals',
};

const isCode = (name) => /\.(ts|mjs|wgsl)$/.test(name);
const filesOf = (...folders) =>
  folders.flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
      .filter(isCode)
      .map((name) => join(folder, name)),
  );
const textOf = (file) => readFileSync(join(root, file), 'utf8');
const linesOf = (files) => files.reduce((sum, file) => sum + textOf(file).split('\n').length - 1, 0);

/** Tokens by TypeScript's scanner, comments apart. */
function tokensOf(files) {
  let tokens = 0;
  for (const file of files.filter((name) => name.endsWith('.ts'))) {
    const source = ts.createSourceFile(file, textOf(file), ts.ScriptTarget.Latest);
    const count = (node) => {
      const children = node.getChildren(source);
      if (children.length === 0 && node.getWidth(source) > 0) tokens++;
      children.forEach(count);
    };
    count(source);
  }
  return tokens;
}

/** Modules that `lla-sim plan` loads, by the files of the library. */
function modulesOfPlan() {
  const counter = `data:text/javascript,${encodeURIComponent(`
    import { register } from 'node:module';
    register('data:text/javascript,' + encodeURIComponent(\`
      import { writeSync } from 'node:fs';
      export async function load(url, context, next) {
        if (url.includes('/dist/src/') || url.includes('/dist/kernels/')) writeSync(2, 'module ' + url + '\\\\n');
        return next(url, context);
      }\`));
  `)}`;
  const library = JSON.stringify(join(root, 'dist/src/index.js'));
  const asked = `import { plan } from ${library}; await plan({ device: 'h200' });`;
  const args = ['--import', counter, '--input-type=module', '-e', asked];
  const { stderr } = spawn(args);
  return stderr.split('\n').filter((line) => line.startsWith('module ')).length;
}

function spawn(args) {
  try {
    return {
      stderr: execFileSync('bash', ['-c', '"$0" "$@" 2>&1 >/dev/null', process.execPath, ...args], {
        encoding: 'utf8',
      }),
    };
  } catch (error) {
    throw new Error(`a plan ended with ${error.status}: ${String(error.stdout).slice(-2000)}`);
  }
}

/** Exports that nothing imports, tests and scripts included. */
function unusedExports() {
  try {
    execFileSync(
      'npx',
      ['knip', '--no-progress', '--include', 'exports,types,files,dependencies', '--reporter', 'compact'],
      {
        cwd: root,
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    );
    return [];
  } catch (error) {
    return String(error.stdout)
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('Unused'));
  }
}

const program = filesOf('src', 'kernels');
const tests = filesOf('test');
const all = [...program, ...tests, ...filesOf('scripts')];
const longLines = all.flatMap((file) =>
  textOf(file)
    .split('\n')
    .flatMap((line, i) => (line.length > COLUMNS ? [`${file}:${i + 1}`] : [])),
);
const words = all
  .filter((file) => file !== 'scripts/house.mjs')
  .flatMap((file) => {
    const text = textOf(file);
    return Object.entries(WORDS).flatMap(([word, instead]) =>
      text.includes(word) ? [`${file}: “${word}”; write ${instead}`] : [],
    );
  });

const inFolders = new Map();
for (const file of program) {
  const folder = file.slice(0, file.lastIndexOf('/'));
  inFolders.set(folder, (inFolders.get(folder) ?? 0) + 1);
}
const largeFiles = program.filter((file) => linesOf([file]) > FILE_LINES);
const largeFolders = [...inFolders].flatMap(([f, n]) => (n > FOLDER_FILES ? [`${f} ${n}`] : []));

if (process.argv.includes('--check')) {
  const wrong = [
    ...unusedExports().map((line) => `unused: ${line}`),
    ...words,
    ...longLines.map((line) => `${line}: more than ${COLUMNS} columns`),
    ...largeFiles.map((file) => `${file}: more than ${FILE_LINES} lines`),
    ...largeFolders.map((folder) => `${folder} files: more than ${FOLDER_FILES}`),
  ];
  for (const line of wrong) console.log(line);
  process.exit(wrong.length > 0 ? 1 : 0);
}

const rows = [
  ['lines of src and kernels', linesOf(program), 50_000],
  ['lines of decoder/gpu and schedule', linesOf(filesOf('src/decoder/gpu', 'src/schedule')), 5600],
  ['lines of tests', linesOf(tests), 26_000],
  ['tokens of src and kernels', tokensOf(program), null],
  [`files of more than ${FILE_LINES} lines`, largeFiles, 0],
  [`folders of more than ${FOLDER_FILES} files`, largeFolders, 0],
  [`lines of more than ${COLUMNS} columns`, longLines, 0],
  ['unused exports, files and packages', unusedExports(), 0],
  ['words that nobody understands at first', words, 0],
  ['modules of a cold plan', modulesOfPlan(), 100],
];
const every = process.argv.includes('--all');
for (const [what, value, most] of rows) {
  const count = Array.isArray(value) ? value.length : value;
  const goal = most === null ? '' : `   at most ${most.toLocaleString('en')}`;
  console.log(`${what.padEnd(40)} ${count.toLocaleString('en').padStart(9)}${goal}`);
  if (Array.isArray(value)) for (const one of every ? value : value.slice(0, 3)) console.log(`    ${one}`);
}
