/** docs/extending.md, followed: its changes, applied to a copy of the program in order, do what the page promises. */
import '../gpu/narrow.js';
import { spawn } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { build } from 'esbuild';
import { globSync } from 'tinyglobby';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type * as Gpu from '../../src/gpu/index.js';
import type * as Correctness from '../../src/validate/memory/correctness.js';
import type * as Geometries from '../../src/validate/memory/geometries.js';
import type * as Memory from '../../src/validate/memory/memory.js';
import { RecordingDevice } from '../decoder/recording-device.js';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';
import { everyNth } from '../gpu/sample.js';
import { commandsOf, fencesOf, wordsOf, type Fence } from './documents.js';
import { ROOT, words } from './program.js';

const PAGE = 'docs/extending.md';
const FENCES = fencesOf(PAGE);
/** What the page adds to the decoder. */
const NEW = words('final-8bit/full full/full/anchors lla/absorbed/anchors lla/reconstruct/anchors lla/rebuilt-keys');
const COMMANDS = FENCES.filter((f) => f.language === 'sh').flatMap(commandsOf);
/** Below it packages are found. */
const CACHE = join(ROOT, 'node_modules/.cache');

/** Applies a block of changes: context and removed lines occur once, together. */
function apply(source: string, { text, line }: Fence): string {
  let changed = source;
  for (const hunk of text.split(/^@@\n/m)) {
    const lines = hunk.split('\n').slice(0, -1);
    const side = (mark: '-' | '+'): string =>
      lines
        .filter((l) => l === '' || l.startsWith(' ') || l.startsWith(mark))
        .map((l) => `${l.slice(1)}\n`)
        .join('');
    const [before, after] = [side('-'), side('+')];
    const at = `\n${changed}`.split(`\n${before}`).length - 1;
    if (at !== 1)
      throw new Error(
        `${PAGE}:${line}: these lines occur ${at} times; where they changed, so must the page:\n${before}`,
      );
    changed = `\n${changed}`.replace(`\n${before}`, () => `\n${after}`).slice(1);
  }
  return changed;
}

describe('docs/extending.md', () => {
  let home = '';
  const inHome = (...args: string[]): Promise<{ code: number; text: string }> =>
    new Promise((resolve) => {
      // Optimised kernels: the ceilings take longer to run than to compile.
      const env = { ...process.env, NO_COLOR: '1', GALLIVM_PERF: '', COLUMNS: '160' };
      const child = spawn(process.execPath, args, { cwd: home, env });
      let text = '';
      for (const stream of [child.stdout, child.stderr])
        stream.on('data', (chunk: Buffer) => (text += chunk.toString()));
      child.on('close', (code) => resolve({ code: code ?? -1, text }));
    });

  beforeAll(async () => {
    mkdirSync(CACHE, { recursive: true });
    home = mkdtempSync(join(CACHE, 'lla-sim-extended-'));
    for (const path of ['src', 'kernels', 'package.json', 'tsconfig.json', 'tsconfig.build.json'])
      cpSync(join(ROOT, path), join(home, path), { recursive: true });
    for (const name of ['node_modules', 'calibrations']) symlinkSync(join(ROOT, name), join(home, name));
    for (const fence of FENCES.filter((f) => f.info !== '')) {
      const at = join(home, fence.info);
      mkdirSync(dirname(at), { recursive: true });
      writeFileSync(at, fence.language === 'diff' ? apply(readFileSync(at, 'utf8'), fence) : fence.text);
    }
    await build({
      entryPoints: globSync(['src/**/*.ts', 'kernels/**/*.ts'], { cwd: home, absolute: true }),
      outdir: join(home, 'dist'),
      outbase: home,
      bundle: false,
      format: 'esm',
      platform: 'node',
      target: 'node20',
      logLevel: 'error',
    });
  });
  afterAll(() => rmSync(home, { recursive: true, force: true }));

  it('names a file in every block that is no command', () => {
    for (const f of FENCES)
      expect(f.language === 'sh' || /^(src|kernels)\/\S+$/.test(f.info), `line ${f.line}`).toBe(true);
    expect(FENCES.filter((f) => f.language === 'diff').length).toBeGreaterThan(15);
  });

  it('lists the files of each recipe', () => {
    const page = readFileSync(join(ROOT, PAGE), 'utf8');
    const sections = page.split(/^## /m).slice(1);
    expect(sections.length).toBe(7);
    for (const section of sections) {
      const title = section.split('\n', 1)[0] as string;
      const paragraph = /^Files to touch: [^]*?\n\n/m.exec(section)?.[0] ?? '';
      const folder = /`((?:src|kernels)\/[a-z/]+\/)`/.exec(paragraph)?.[1] ?? '';
      const listed = [...paragraph.matchAll(/`([^`]+\.(?:ts|wgsl))`/g)].map(([, name = '']) =>
        /^(src|kernels)\//.test(name) ? name : folder + name,
      );
      const changed = [...section.matchAll(/^ *```(?:diff|ts|wgsl) (\S+)$/gm)].map(([, name = '']) => name);
      expect([...new Set(listed)].sort(), title).toEqual([...new Set(changed)].sort());
    }
  });

  it('changes what compiles', async () => {
    const o = await inHome(join(ROOT, 'node_modules/typescript-7/bin/tsc'), '--noEmit', '-p', 'tsconfig.build.json');
    expect(o.code, o.text).toBe(0);
  });

  it.each(COMMANDS.filter((c) => c.startsWith('npx lla-sim plan')))('%s', async (command) => {
    const words = wordsOf(command).slice(2);
    const o = await inHome(join(home, 'dist/src/cli.js'), ...words);
    expect(o.code, o.text).toBe(0);
    for (const word of ['final-8bit', 'rebuilt-keys', 'X96', 'ouro-96', 'x-quiz', 'anchors'])
      if (command.toLowerCase().includes(word.toLowerCase())) expect(o.text).toContain(word);
  });

  it('has no command that is not run here', () => {
    for (const c of COMMANDS) expect(c).toMatch(/^npx lla-sim (plan|bench) /);
  });

  describeGpu('on a device', () => {
    it.each(COMMANDS.filter((c) => c.startsWith('npx lla-sim bench')))('%s', async (command) => {
      const run = (words: string): ReturnType<typeof inHome> =>
        inHome(join(home, 'dist/src/cli.js'), ...wordsOf(words).slice(2));
      let o = await run(command);
      // On a machine that is too busy for its budget the program says which it needs.
      for (let hint; (hint = /nothing was measured: .* such as (--budget \d+s)/.exec(o.text)?.[1]);)
        o = await run(command.replace(/--budget \d+s/, hint));
      expect(o.code, o.text).toBe(0);
      expect(o.text).toMatch(/^relu +f32 +[0-9.]+/m);
    });

    it('makes a decoder that allocates what is predicted and computes what float64 computes', async () => {
      const load = (path: string): Promise<unknown> =>
        import(/* @vite-ignore */ pathToFileURL(join(home, 'dist', path)).href);
      const [{ openDevice }, { checkMemory, memoryCandidates }, { checkCorrectness }, { SMALL_OURO }] =
        (await Promise.all([
          load('src/gpu/index.js'),
          load('src/validate/memory/memory.js'),
          load('src/validate/memory/correctness.js'),
          load('src/validate/memory/geometries.js'),
        ])) as [typeof Gpu, typeof Memory, typeof Correctness, typeof Geometries];
      const names = memoryCandidates(SMALL_OURO).map((c) => `${c.codec.kind}/${c.path}`);
      expect(names).toEqual(expect.arrayContaining(['final-8bit/full', 'lla/rebuilt-keys']));
      const cases = memoryCandidates(SMALL_OURO)
        .filter(
          (c) =>
            (c.codec.rankK ?? 0) % 2 === 0 &&
            NEW.includes([c.codec.kind, c.path, ...(c.eviction ? [c.eviction.policy] : [])].join('/')) &&
            !c.materialised,
        )
        .map((candidate) => ({
          id: `${candidate.codec.kind}/${candidate.path}${candidate.eviction ? '/anchors' : ''}`,
          batch: 2,
          contextTokens: 201,
          c: {
            ...{ geometry: SMALL_OURO, ...candidate, gpus: 1, targetWorkgroups: 8, bindingBytes: Infinity },
            ...{ choice: { storage: 'f16', groupSize: 32 } as const, branch: { width: 6, perHead: false } },
          },
        }));
      expect(cases.map(({ id }) => id).sort()).toEqual([...NEW].sort());
      const device = await openDevice();
      try {
        // Prompts of every kind are taken in for it: all on a device that records, one, another by each seed, on this.
        for (const [on, of] of [
          [new RecordingDevice().device, cases],
          [device, everyNth(cases, cases.length)],
        ] as const) {
          const memory = await checkMemory(on, { seed: SEED, cases: of });
          expect([memory.rows.length, memory.mismatches, memory.notRun]).toEqual([of.length, [], []]);
        }
        // A code or a half that lies between two levels may fall to either side, which one prompt may show and three
        // do not: cases that the first shows are tried on two more.
        const errors = new Map(cases.map(({ id }): [string, number[]] => [id, []]));
        for (const i of [0, 1, 2]) {
          const open = cases.filter(({ id }) => i === 0 || ((errors.get(id) as number[])[0] as number) >= 3e-3);
          if (open.length === 0) break;
          const { rows, notRun } = await checkCorrectness(device, { seed: SEED + i, cases: open, storage: 'f16' });
          expect(notRun).toEqual([]);
          for (const { id } of open) errors.get(id)?.push(rows.find((r) => r.id === id)?.error ?? Infinity);
        }
        for (const [id, of] of errors) {
          expect(Math.min(...of), `${id}, LLA_SIM_SEED=${SEED}`).toBeLessThan(3e-3);
          expect(Math.max(...of), `${id}, LLA_SIM_SEED=${SEED}`).toBeLessThan(0.1);
        }
      } finally {
        device.close();
      }
    });
  });
});
