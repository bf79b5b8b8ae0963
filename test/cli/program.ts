/** Running the program: in this process, for thousands of cases, and as a process of its own. */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { expect } from 'vitest';
import { commandBundles } from '../../scripts/command-bundles.mjs';
import { isNewest } from '../../scripts/newest.mjs';
import { pageBundle } from '../../scripts/page-bundle.mjs';
import { runCommandLine } from '../../src/commands/parser.js';
import { UserError } from '../../src/errors.js';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));

export interface Outcome {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** `lla-sim plan` with these arguments, in this process. */
export const plan = (...argv: string[]): Promise<Outcome> => inProcess('plan', ...argv);

/** A command in this process, as cli.ts runs it. A defect is thrown, as is JSON that its published schema refuses. */
export async function inProcess(name: string, ...argv: string[]): Promise<Outcome> {
  let out = '';
  let err = '';
  const [stdout, stderr] = [process.stdout.write.bind(process.stdout), process.stderr.write.bind(process.stderr)];
  process.stdout.write = ((text: string | Uint8Array, after?: unknown): boolean => {
    out += String(text);
    if (typeof after === 'function') (after as () => void)();
    return true;
  }) as typeof process.stdout.write;
  process.stderr.write = ((text: string | Uint8Array): boolean => {
    err += String(text);
    return true;
  }) as typeof process.stderr.write;
  try {
    const code = await runCommandLine([name, ...argv]);
    if (out.startsWith('{')) (await import('./published.js')).checkPublished(out);
    return { code, out, err };
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    return { code: error.exitCode, out, err: `${err}error: ${error.message}; ${error.hint}\n` };
  } finally {
    process.stdout.write = stdout;
    process.stderr.write = stderr;
  }
}

/** Any control character but the newline that ends a line. */

const CONTROL = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/;

/** Exit 2 means: one line on stderr that names subject and next action, nothing on stdout. */
export function expectBadInput(o: Outcome): void {
  expect(o.code, o.err).toBe(2);
  expect(o.out).toBe('');
  expect(o.err).toMatch(/^error: .{8,}; .{4,}\n$/);
  expect(o.err).not.toMatch(CONTROL);
  // What was received is quoted; the program's own words must not leak a missing value or a stack.
  expect(o.err.replace(/"(?:[^"\\]|\\.)*("|\.\.\.)/g, '')).not.toMatch(/\bundefined\b|\[object|\bat .*\.ts:\d+/);
  expect(o.err.length).toBeLessThan(1200);
}

/** As its schema says (NaN and infinity print as null), no negative number; intervals in order, ids once. */
export function expectSoundJson(text: string): Record<string, unknown> {
  const report = JSON.parse(text) as Record<string, unknown>;
  const walk = (value: unknown, path: string): void => {
    if (typeof value === 'number') {
      if (!(value >= 0)) throw new Error(`${path} is ${value}`);
      return;
    }
    if (typeof value !== 'object' || value === null) return;
    const o = value as Record<string, unknown>;
    if ('estimate' in o && 'low' in o && 'high' in o) {
      if (!((o['low'] as number) <= (o['estimate'] as number) && (o['estimate'] as number) <= (o['high'] as number)))
        throw new Error(`${path} is out of order: ${JSON.stringify(o)}`);
    }
    for (const [key, inner] of Object.entries(o)) walk(inner, `${path}.${Array.isArray(value) ? `[${key}]` : key}`);
  };
  walk(report, '');
  const ids = ((report['plans'] ?? []) as { id: string }[]).map((p) => p.id);
  if (new Set(ids).size < ids.length) throw new Error(`two plans have one id among ${ids.join(', ')}`);
  return report;
}

/** What every run must satisfy, whatever it was asked. */
export function expectSound(o: Outcome, format: 'json' | 'table' | 'csv' | 'markdown' = 'json'): void {
  expect([0, 2, 3], o.err).toContain(o.code);
  if (o.code === 2) return expectBadInput(o);
  if (o.code === 3) expect(o.err).toMatch(/^error: (nothing fits|no plan meets the targets)/);
  expect(o.err).not.toMatch(/NaN|Infinity|undefined|\[object/);
  if (o.out === '') return;
  if (format === 'json') expectSoundJson(o.out);
  else expect(o.out).not.toMatch(/NaN|Infinity|undefined|\[object|-\d+(\.\d+)? (B|KiB|MiB|GiB)/);
  if (format === 'table') for (const line of o.out.split('\n')) expect(line.length, line).toBeLessThanOrEqual(100);
}

/** The config.json of a small model. */
export const OURO_CONFIG = JSON.stringify({
  model_type: 'ouro',
  num_hidden_layers: 4,
  total_ut_steps: 2,
  num_attention_heads: 4,
  num_key_value_heads: 4,
  head_dim: 64,
  hidden_size: 256,
  intermediate_size: 700,
  vocab_size: 1000,
  max_position_embeddings: 4096,
});

/** A folder for a test's files, removed by `remove`. */
export function scratch(): {
  readonly path: string;
  readonly file: (name: string, content: string | Buffer) => string;
  readonly removeFile: (name: string) => void;
  readonly remove: () => void;
} {
  const path = mkdtempSync(join(tmpdir(), 'lla-sim-test-'));
  return {
    path,
    file: (name, content) => {
      const at = join(path, name);
      writeFileSync(at, content);
      return at;
    },
    removeFile: (name) => rmSync(join(path, name)),
    remove: () => rmSync(path, { recursive: true, force: true }),
  };
}

/** Where Mesa keeps what it has compiled: a program with a home of its own would compile every shader anew. */
const SHADER_CACHE = process.env['MESA_SHADER_CACHE_DIR'] ?? process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache');
/** That cache holds what was compiled for so many lanes (vitest.config.ts). */
const LANES = process.env['LP_NATIVE_VECTOR_WIDTH'];

/** A program that runs as a process. */
export interface Program {
  readonly cli: string;
  run(
    args: readonly string[],
    options?: { cwd?: string; node?: readonly string[]; env?: Record<string, string> },
  ): Outcome;
  remove(): void;
}

/**
 * A copy of the program without calibrations of devices, so that what it prints does not depend on this checkout's; it
 * lies under node_modules, where its packages are found.
 * @param write writes to a folder `dist`, and returns the file to run
 */
async function programFrom(write: (dist: string) => Promise<string>): Promise<Program> {
  const cache = join(ROOT, 'node_modules/.cache');
  mkdirSync(cache, { recursive: true });
  const home = mkdtempSync(join(cache, 'lla-sim-cli-'));
  const cli = await write(join(home, 'dist'));
  cpSync(join(ROOT, 'package.json'), join(home, 'package.json'));
  mkdirSync(join(home, 'calibrations'));
  for (const name of ['stacks', 'attainable.json', 'servers.json', 'runtimes.json', 'accuracy.json'])
    symlinkSync(join(ROOT, 'calibrations', name), join(home, 'calibrations', name));
  symlinkSync(join(ROOT, 'kernels'), join(home, 'kernels'));
  for (const name of ['models', 'ledger']) symlinkSync(join(ROOT, name), join(home, name));
  return {
    cli,
    run: (args, options = {}) => {
      const r = spawnSync(process.execPath, [...(options.node ?? []), cli, ...args], {
        cwd: options.cwd ?? home,
        encoding: 'utf8',
        timeout: 300_000,
        killSignal: 'SIGKILL',
        input: '',
        maxBuffer: 2 ** 28,
        env: {
          PATH: process.env['PATH'] ?? '',
          HOME: home,
          NO_COLOR: '1',
          MESA_SHADER_CACHE_DIR: SHADER_CACHE,
          GALLIVM_PERF: process.env['GALLIVM_PERF'] ?? '',
          ...(LANES === undefined ? {} : { LP_NATIVE_VECTOR_WIDTH: LANES }),
          ...options.env,
        },
      });
      return { code: r.status ?? -1, out: r.stdout, err: r.stderr };
    },
    remove: () => rmSync(home, { recursive: true, force: true }),
  };
}

/** What `npm test` has built, which tests need not build again. */
const BUILT = join(ROOT, 'dist');

/** Whether it is newer than what programs are made from. Its licences are written last. */
const isBuilt = (): boolean =>
  isNewest(
    join(BUILT, 'LICENCES.txt'),
    ['src', 'kernels', 'scripts', 'package-lock.json'].map((name) => join(ROOT, name)),
  );

/** The program of a report's page. */
export const pageProgram = async (): Promise<string> =>
  isBuilt() ? read(join(BUILT, 'page/page.js')) : (await pageBundle()).text;

/** Copies modules and bundles of dist/, or makes what is needed of them. */
async function copyOr(make: () => Promise<unknown>, dist: string): Promise<void> {
  const isLeftOut = (path: string): boolean =>
    /\.(d\.ts|html)$/.test(path) || path === join(BUILT, 'page') || path === join(BUILT, 'LICENCES.txt');
  if (isBuilt()) cpSync(BUILT, dist, { recursive: true, filter: (path) => !isLeftOut(path) });
  else await make();
}

const AS_MODULES = {
  outbase: ROOT,
  bundle: false,
  format: 'esm',
  platform: 'node',
  target: 'node20',
  logLevel: 'error',
} as const;

/** The program compiled module by module, as the library's modules lie. */
export const compile = (): Promise<Program> =>
  programFrom(async (dist) => {
    await copyOr(async () => {
      const { globSync } = await import('tinyglobby');
      const entryPoints = globSync(['src/**/*.ts', 'kernels/**/*.ts'], { cwd: ROOT, absolute: true });
      await build({ ...AS_MODULES, entryPoints, outdir: dist });
    }, dist);
    return join(dist, 'src/cli.js');
  });

/** The program in bundles, as a build writes and a package carries it. */
export const bundle = (): Promise<Program> =>
  programFrom(async (dist) => {
    await copyOr(async () => {
      await build({ ...AS_MODULES, entryPoints: [join(ROOT, 'src/errors.ts')], outdir: dist });
      await commandBundles(join(dist, 'bin'));
    }, dist);
    return join(dist, 'bin/cli.js');
  });

export const read = (path: string): string => readFileSync(path, 'utf8');

/** Words of a line, as a list of arguments or of names. */
export const words = (line: string): string[] => line.split(' ');

/** Wrong input, and what is said of it. */
export function expectRefused(o: Outcome, message: string | RegExp): void {
  expectBadInput(o);
  if (typeof message === 'string') expect(o.err).toContain(message);
  else expect(o.err).toMatch(message);
}
