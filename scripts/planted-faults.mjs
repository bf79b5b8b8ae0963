/**
 * Plants faults in the program, one at a time, and says which of them the tests find: `npm run test:planted`.
 *
 *   node scripts/planted-faults.mjs [--faults 40] [--seed N] [--only FOLDER] [--list]
 *
 * Rooms are drawn evenly, a room's files by their length, a file's places evenly. Each fault is one that a person could
 * have made: an operator, a bound, a number, a condition, the order of two results. It is planted in a copy of the last
 * commit. Tests of the modules that reach it run first; where these pass, the program is built and all tests run. A
 * fault that is not found means that a test is missing, or that it changes nothing.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import ts from 'typescript';
import { randomFrom } from './faults.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const SHARED = ['--project', 'shared'];
const OTHERS = ['alone, eight lanes', 'alone, four lanes', 'eight lanes', 'four lanes', 'timed'].flatMap((name) => [
  '--project',
  name,
]);

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
    const line = text.slice(0, from).split('\n').length;
    faults.push({
      file,
      line,
      was: text.slice(from, to),
      instead,
      text: text.slice(0, from) + instead + text.slice(to),
    });
  }
  return faults;
}

/** A folder of src; its loose files are one room, and the kernels. */
const roomOf = (file) => /^src\/[^/]+\//.exec(file)?.[0] ?? file.split('/')[0];

/** Runs tests of the copy; true where one failed. */
function failed(copy, args, seconds) {
  const { status, error } = spawnSync('npx', ['vitest', ...args, '--run', '--bail', '1', '--reporter', 'dot'], {
    cwd: copy,
    stdio: 'ignore',
    timeout: seconds * 1000,
  });
  // A fault that makes a loop endless is found by whoever waits.
  return error !== undefined || status !== 0;
}

function find(copy, { file, text }) {
  const path = join(copy, file);
  const before = readFileSync(path, 'utf8');
  writeFileSync(path, text);
  try {
    const near = file.endsWith('.ts') ? ['related', file] : ['run', 'test/gpu', 'test/decoder'];
    for (const projects of [SHARED, OTHERS])
      if (failed(copy, [...near, ...projects, '--passWithNoTests'], 1800)) return 'by tests that reach it';
    const built = spawnSync('node', ['scripts/build.mjs'], { cwd: copy, stdio: 'ignore' });
    if (built.status !== 0) return 'by the build';
    return failed(copy, ['run'], 3600) ? 'by the other tests' : null;
  } finally {
    writeFileSync(path, before);
  }
}

function main() {
  const { values } = parseArgs({
    options: {
      faults: { type: 'string', default: '40' },
      seed: { type: 'string', default: String(Math.floor(Math.random() * 1e9)) },
      only: { type: 'string', default: '' },
      list: { type: 'boolean', default: false },
    },
  });
  const faults = drawFaults(Number(values.faults), Number(values.seed), values.only);
  console.log(`${faults.length} faults, seed ${values.seed}`);
  const printed = ({ file, line, was, instead }) =>
    `${file}:${line}  ${was.replace(/\s+/g, ' ').slice(0, 60)} → ${instead.replace(/\s+/g, ' ').slice(0, 60)}`;
  if (values.list) return faults.forEach((fault) => console.log(printed(fault)));
  const copy = mkdtempSync(join(tmpdir(), 'planted-'));
  execFileSync('git', ['worktree', 'add', '--quiet', '--force', '--detach', copy], { cwd: root });
  let found = 0;
  try {
    symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
    execFileSync('node', ['scripts/build.mjs'], { cwd: copy, stdio: 'ignore' });
    for (const fault of faults) {
      const how = find(copy, fault);
      if (how !== null) found++;
      console.log(`${how === null ? 'NOT FOUND' : 'found'}  ${printed(fault)}${how === null ? '' : `  (${how})`}`);
    }
  } finally {
    execFileSync('git', ['worktree', 'remove', '--force', copy], { cwd: root });
    rmSync(copy, { recursive: true, force: true });
  }
  console.log(`${found} of ${faults.length} found`);
  process.exitCode = found === faults.length ? 0 : 1;
}

main();
