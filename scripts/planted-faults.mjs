/**
 * Plants faults in the program, one at a time, and says which of them the tests find: `npm run test:planted`.
 *
 *   node scripts/planted-faults.mjs [--faults 40] [--seed N] [--only FOLDER] [--which 3,7] [--list]
 *
 * `--which` plants only some of those that are drawn, counted from 0.
 *
 * Rooms are drawn evenly, a room's files by their length, a file's places evenly. Each fault is one that a person could
 * have made: an operator, a bound, a number, a condition, the order of two results. It is planted in a copy of the last
 * commit and built; then the tests run whose imports are nearest to it. What these do not find is planted together, and
 * all tests run: each test file that fails runs again for each of these faults alone, and what is left is planted
 * together again, until no file tells of a single fault. At last all files that found one run without any: a file that
 * fails there has found nothing. A fault that is not found means that a test is missing, or that it changes nothing.
 */
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import ts from 'typescript';
import { randomFrom } from './faults.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
/** How many of the nearest test files run for one fault alone, and for those that are left. */
const [NEAREST, NEARBY] = [5, 20];
/** Slower files wait until all tests run, in seconds, where they were ever timed. */
const SLOW = 12;
/** What takes longer than this runs endlessly, in seconds: of near tests, of all. */
const PATIENCE = { near: 1800, all: 7200 };

const OPERATORS = {
  '+': '-',
  '-': '+',
  '*': '/',
  '/': '*',
  '<': '<=',
  '<=': '<',
  '>': '>=',
  '>=': '>',
  '===': '!==',
  '!==': '===',
  '&&': '||',
  '||': '&&',
  '??': '&&',
  '+=': '-=',
};
const CALLS = { ceil: 'floor', floor: 'ceil', round: 'floor', max: 'min', min: 'max', some: 'every', every: 'some' };

/** Places of a TypeScript text where a fault can be, each with what stands there then. */
function placesOf(text) {
  const source = ts.createSourceFile('fault.ts', text, ts.ScriptTarget.Latest, true);
  const places = [];
  const put = (node, instead) => places.push({ from: node.getStart(source), to: node.getEnd(), instead });
  const visit = (node) => {
    if (ts.isTypeNode(node) || ts.isImportDeclaration(node) || ts.isInterfaceDeclaration(node)) return;
    if (ts.isBinaryExpression(node)) {
      const operator = node.operatorToken.getText(source);
      const joinsText = [node.left, node.right].some((side) => ts.isStringLiteralLike(side));
      if (OPERATORS[operator] && !joinsText) put(node.operatorToken, OPERATORS[operator]);
    }
    if (ts.isNumericLiteral(node)) put(node, `(${node.getText(source)} + 1)`);
    if (ts.isPrefixUnaryExpression(node) && node.operator === ts.SyntaxKind.ExclamationToken)
      put(node, node.operand.getText(source));
    if (ts.isPropertyAccessExpression(node) && Object.hasOwn(CALLS, node.name.text))
      put(node.name, CALLS[node.name.text]);
    if (ts.isConditionalExpression(node)) {
      const [yes, no] = [node.whenTrue, node.whenFalse].map((side) => side.getText(source));
      put(node, `${node.condition.getText(source)} ? ${no} : ${yes}`);
    }
    if (node.kind === ts.SyntaxKind.TrueKeyword) put(node, 'false');
    if (node.kind === ts.SyntaxKind.FalseKeyword) put(node, 'true');
    ts.forEachChild(node, visit);
  };
  visit(source);
  return places;
}

/** The same of a kernel, comments apart. */
function placesOfKernel(text) {
  const code = text.replace(/\/\/.*$/gm, (comment) => ' '.repeat(comment.length));
  return [...code.matchAll(/ (\+|-|\*|\/|<|<=|>|>=|\+=) |\b(max|min)\(|\b(\d+)u\b/g)].map((match) => {
    const [whole, operator, call, number] = match;
    const found = operator ?? call ?? number;
    const from = match.index + whole.indexOf(found);
    const instead = operator ? OPERATORS[operator] : call ? CALLS[call] : String(Number(number) + 1);
    return { from, to: from + found.length, instead };
  });
}

/** Faults, all drawn from one seed: file, line, and the text with the fault in it. */
function drawFaults(count, seed, only = '') {
  const random = randomFrom(seed);
  const files = ['src', 'kernels']
    .flatMap((folder) =>
      readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' }).map((name) => join(folder, name)),
    )
    .filter((file) => /\.(ts|wgsl)$/.test(file) && file.startsWith(only))
    .sort();
  const rooms = new Map();
  for (const file of files) rooms.set(roomOf(file), [...(rooms.get(roomOf(file)) ?? []), file]);
  const names = [...rooms.keys()];
  const faults = [];
  while (faults.length < count) {
    const own = rooms
      .get(names[Math.floor(random() * names.length)])
      .map((file) => ({ file, text: readFileSync(join(root, file), 'utf8') }));
    let at = random() * own.reduce((sum, { text }) => sum + text.length, 0);
    const { file, text } = own.find((one) => (at -= one.text.length) < 0) ?? own.at(-1);
    const places = file.endsWith('.ts') ? placesOf(text) : placesOfKernel(text);
    if (places.length === 0) continue;
    const { from, to, instead } = places[Math.floor(random() * places.length)];
    const before = text.slice(0, from).split('\n');
    const place = `${file}:${before.length}:${before.at(-1).length + 1}`;
    faults.push({ file, place, from, to, was: text.slice(from, to), instead, text });
  }
  return faults;
}

/** A folder of src; its loose files are one room, and the kernels. */
const roomOf = (file) => /^src\/[^/]+\//.exec(file)?.[0] ?? file.split('/')[0];

/** Seconds that test files took when they ran here last. */
function timesOfTests() {
  const cache = join(root, 'node_modules/.vite/vitest');
  const times = new Map();
  for (const name of existsSync(cache) ? readdirSync(cache, { recursive: true, encoding: 'utf8' }) : [])
    if (name.endsWith('results.json'))
      for (const [of, { duration }] of JSON.parse(readFileSync(join(cache, name), 'utf8')).results)
        times.set(of.slice(of.indexOf(':') + 1), duration / 1000);
  return times;
}

/** Test files in the order of how many imports lie between them and a file; those of its own room before others. */
function nearestTests(file) {
  const imports = new Map();
  for (const folder of ['src', 'kernels', 'test'])
    for (const name of readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })) {
      if (!name.endsWith('.ts')) continue;
      const text = readFileSync(join(root, folder, name), 'utf8').replace(/\b(im|ex)port type [^;]*;/g, '');
      for (const [, path] of text.matchAll(/(?:from|import\(|import) ?'(\.[^']+)\.js'/g)) {
        const of = `${join(folder, dirname(name), path)}.ts`;
        imports.set(of, [...(imports.get(of) ?? []), join(folder, name)]);
      }
    }
  const start = file.endsWith('.ts')
    ? [file]
    : [...imports.keys()].filter((name) => dirname(name) === dirname(file) || name === 'kernels/source.ts');
  const distances = new Map(start.map((name) => [name, 0]));
  for (const [name, distance] of distances)
    for (const by of imports.get(name) ?? []) if (!distances.has(by)) distances.set(by, distance + 1);
  // Tests of a page load what was built.
  const own = roomOf(file).replace(/^src/, 'test');
  for (const name of own.endsWith('/') && existsSync(join(root, own)) ? readdirSync(join(root, own)) : [])
    if (name.endsWith('.ts') && !distances.has(own + name)) distances.set(own + name, 2);
  const order = ([name, distance]) => distance - (name.startsWith(own) ? 1.5 : 0);
  return [...distances]
    .filter(([name]) => name.endsWith('.test.ts'))
    .sort((a, b) => order(a) - order(b))
    .map(([name]) => name);
}

const short = (text) => text.replace(/\s+/g, ' ').slice(0, 60);

/** Runs tests of the copy: files that failed, each with its first test that did; null where the run did not end. */
async function failures(copy, files, seconds, ...options) {
  const results = join(copy, 'dist', 'planted.json');
  rmSync(results, { force: true });
  const child = spawn(
    process.execPath,
    ['node_modules/vitest/vitest.mjs', 'run', ...files, ...options, '--reporter', 'json', '--outputFile', results],
    {
      cwd: copy,
      stdio: 'ignore',
      detached: true,
      env: { ...process.env, LLA_SIM_REQUIRE_GPU: '1', LLA_SIM_REQUIRE_BROWSER: '1' },
    },
  );
  // A fault that makes a loop endless is found by whoever waits.
  const timer = setTimeout(() => process.kill(-child.pid, 'SIGKILL'), seconds * 1000);
  const status = await new Promise((resolve) => child.on('close', resolve));
  clearTimeout(timer);
  if (status === null) return null;
  const { testResults } = JSON.parse(readFileSync(results, 'utf8'));
  const failed = testResults
    .filter((one) => one.status === 'failed')
    .map((one) => ({
      file: one.name.slice(one.name.indexOf('/test/') + 1),
      test: one.assertionResults.find((test) => test.status === 'failed')?.title ?? short(one.message),
    }));
  if (status !== 0 && failed.length === 0) return [{ file: '', test: 'an error outside of tests' }];
  return failed;
}

/** Does something while faults are planted and built; 'build' where that fails. Types are not checked unless asked. */
async function planted(copy, faults, action, options = ['--checked']) {
  const files = [...new Set(faults.map((fault) => fault.file))];
  for (const file of files) {
    const own = faults.filter((fault) => fault.file === file).sort((a, b) => b.from - a.from);
    let { text } = own[0];
    for (const { from, to, instead } of own) text = text.slice(0, from) + instead + text.slice(to);
    writeFileSync(join(copy, file), text);
  }
  try {
    const built = spawnSync('node', ['scripts/build.mjs', ...options], { cwd: copy, stdio: 'ignore' });
    if (built.status !== 0) return 'build';
    return await action();
  } finally {
    for (const { file, text } of faults) writeFileSync(join(copy, file), text);
  }
}

/** What finds a fault alone, or null: the build, or the first of some test files that fails; no files, no test. */
async function findAlone(copy, fault, files) {
  if (files.length === 0) return null;
  return planted(copy, [fault], async () => {
    const failed = await failures(copy, files, PATIENCE.near, '--bail', '1');
    return failed === null ? { file: files.join(' '), test: 'endless' } : (failed[0] ?? null);
  });
}

/** Those of one file that overlap cannot be planted together. */
const apart = (faults) =>
  faults.filter(
    (one, i) => !faults.slice(0, i).some((by) => by.file === one.file && by.from < one.to && one.from < by.to),
  );

async function main() {
  const { values } = parseArgs({
    options: {
      faults: { type: 'string', default: '40' },
      seed: { type: 'string', default: String(Math.floor(Math.random() * 1e9)) },
      which: { type: 'string', default: '' },
      only: { type: 'string', default: '' },
      list: { type: 'boolean', default: false },
    },
  });
  const which = values.which === '' ? null : values.which.split(',').map(Number);
  const faults = drawFaults(Number(values.faults), Number(values.seed), values.only).filter(
    (_, i) => which === null || which.includes(i),
  );
  console.log(`${faults.length} faults, seed ${values.seed}`);
  const printed = ({ place, was, instead }) => `${place}  ${short(was)} → ${short(instead)}`;
  if (values.list) return faults.forEach((fault) => console.log(printed(fault)));
  const copy = mkdtempSync(join(tmpdir(), 'planted-'));
  execFileSync('git', ['worktree', 'add', '--quiet', '--force', '--detach', copy], { cwd: root });
  const found = new Map();
  const note = (fault, how) => {
    if (how === null) return;
    found.set(fault, how);
    console.log(`found  ${printed(fault)}  (${typeof how === 'string' ? how : `${how.file}: ${how.test}`})`);
  };
  try {
    symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
    const times = timesOfTests();
    const near = new Map(
      faults.map((fault) => [fault, nearestTests(fault.file).filter((name) => !(times.get(name) > SLOW))]),
    );
    for (const fault of faults) {
      const how = await findAlone(copy, fault, near.get(fault).slice(0, NEAREST));
      note(fault, how);
      if (how === null) console.log(`left   ${printed(fault)}`);
    }
    // First the tests near to any of them, then all.
    for (const nearby of [NEARBY, null])
      for (let open = faults.filter((fault) => !found.has(fault)); open.length > 0;) {
        const left = apart(open);
        const tests = nearby === null ? [] : [...new Set(left.flatMap((fault) => near.get(fault).slice(0, nearby)))];
        const failed = await planted(copy, left, () => failures(copy, tests, PATIENCE.all));
        const names = Array.isArray(failed) ? failed.map((one) => one.file).join(' ') || 'none' : 'unknown';
        console.log(`${left.length} planted together; of ${tests.length || 'all'} test files these fail: ${names}`);
        const files = Array.isArray(failed) && failed[0]?.file !== '' ? failed.map((one) => one.file) : tests;
        if (failed?.length !== 0) for (const fault of left) note(fault, await findAlone(copy, fault, files));
        const told = left.some((fault) => found.has(fault));
        open = open.filter((fault) => !found.has(fault) && (told || !left.includes(fault)));
      }
    await planted(copy, [], async () => {
      const files = [...new Set([...found.values()].map((how) => how.file).filter(Boolean))];
      const without = files.length === 0 ? [] : await failures(copy, files, PATIENCE.all);
      for (const [fault, { file }] of [...found])
        if (without.some((one) => one.file === file)) {
          console.log(`${file} fails without a fault too`);
          found.delete(fault);
        }
    });
    for (const fault of faults.filter((one) => !found.has(one))) {
      const built = await planted(copy, [fault], () => null, []);
      console.log(`${built === null ? 'NOT FOUND' : 'by its type alone'}  ${printed(fault)}`);
    }
  } finally {
    execFileSync('git', ['worktree', 'remove', '--force', copy], { cwd: root });
    rmSync(copy, { recursive: true, force: true });
  }
  console.log(`${found.size} of ${faults.length} found by tests`);
  process.exitCode = found.size === faults.length ? 0 : 1;
}

await main();
