/** The program as a process, as a package carries it, without calibrations. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PRESETS } from '../../src/geometry/presets.js';
import {
  bundle,
  compile,
  expectBadInput,
  expectSound,
  expectSoundJson,
  inProcess,
  OURO_CONFIG,
  type Program,
  read,
  ROOT,
  scratch,
  words,
} from './program.js';

let program: Program;
/** Module by module, so that what is loaded has names. */
let modules: Program;
const files = scratch();
beforeAll(async () => {
  [program, modules] = await Promise.all([bundle(), compile()]);
});
afterAll(() => {
  program.remove();
  modules.remove();
  files.remove();
});
/** Some number; the exact one is another test's. */
const NUMBER = expect.any(Number) as unknown as number;
const run = (...args: string[]) => program.run(args);

/** Preloaded: records every native module that is loaded, and every package. */
const SPY = `
const { writeFileSync, appendFileSync } = require('node:fs');
const Module = require('node:module');
const log = process.env.SPY_LOG;
writeFileSync(log, '');
const dlopen = process.dlopen;
process.dlopen = function (module, file, ...rest) {
  appendFileSync(log, 'native ' + file + '\\n');
  return dlopen.call(this, module, file, ...rest);
};
process.on('exit', () => { for (const k of Object.keys(Module._cache)) appendFileSync(log, 'cjs ' + k + '\\n'); });
`;
const HOOKS = `
import { register } from 'node:module';
register('data:text/javascript,' + encodeURIComponent(\`
import { appendFileSync } from 'node:fs';
export async function load(url, context, next) {
  appendFileSync(\${JSON.stringify(process.env.SPY_LOG)}, 'esm ' + url + '\\\\n');
  return next(url, context);
}
\`), import.meta.url);
`;
function loadedBy(...args: string[]): string[] {
  const log = join(files.path, 'loaded.log');
  const spy = files.file('spy.cjs', SPY);
  const hooks = files.file('hooks.mjs', HOOKS);
  const o = modules.run(args, { node: ['--require', spy, '--import', hooks], env: { SPY_LOG: log } });
  expect(o.code, o.err).toBe(0);
  return readFileSync(log, 'utf8').split('\n').filter(Boolean);
}

describe('what plan loads', () => {
  it.each(['--device h200 --codec full,lla --format json', 'SCENARIO --model CONFIG --stack trtllm --format markdown'])(
    'no native module, no Dawn, nothing of the GPU side: %s',
    (asked) => {
      const config = files.file('config.json', OURO_CONFIG);
      const scenario = files.file('s.yaml', 'device: h200\ncodec: full\n');
      const loaded = loadedBy('plan', ...words(asked.replace('CONFIG', config).replace('SCENARIO', scenario)));
      expect(loaded.some((l) => l.includes('/plan/plan.js'))).toBe(true); // the spy sees modules
      expect(loaded.filter((l) => l.startsWith('native ') || l.endsWith('.node'))).toEqual([]);
      expect(loaded.filter((l) => /node_modules\/(?!\.cache\/)(webgpu|canvas|@napi-rs)\//.test(l))).toEqual([]);
      expect(loaded.filter((l) => /dist\/(gpu|bench|decoder|validate)\//.test(l))).toEqual([]);
    },
  );
  it('the spy does see a native module', () => {
    const log = join(files.path, 'control.log');
    const load = `try { process.dlopen({ exports: {} }, '/nonexistent.node') } catch {}`;
    const args = ['--require', files.file('spy.cjs', SPY), '-e', load];
    execFileSync(process.execPath, args, { env: { ...process.env, SPY_LOG: log } });
    expect(readFileSync(log, 'utf8')).toContain('native /nonexistent.node');
  });
});

describe('streams and exit codes', () => {
  it('0: the result on stdout, without colours where no terminal is, nothing on stderr', () => {
    const o = run('plan', '--vram', '141GB', '--ctx', '4096');
    expectSound(o, 'table');
    expect([o.code, o.err]).toEqual([0, '']);
    expect(o.out).toContain('ouro-1.4b');
    expect(o.out).not.toMatch(/\u001b/);
  });
  it('0: JSON, with the fields that a reader of it relies on', () => {
    const o = run('plan', '--vram', '141GB', '--format', 'json');
    const report = expectSoundJson(o.out) as Record<string, unknown> & {
      plans: Record<string, Record<string, unknown>>[];
    };
    expect(Object.keys(report).slice(0, 2)).toEqual(['schema', 'schemaVersion']);
    expect(report).toMatchObject({
      schema: 'lla-sim/plan',
      schemaVersion: 2,
      model: { name: 'ouro-1.4b', layers: 24, loops: 4, heads: 16, kvHeads: 16, headDim: 128 },
      device: { vramBytes: 141e9 },
      contextTokens: 4096,
      stack: { name: 'vllm', version: '0.24.0', file: 'calibrations/stacks/h200-vllm.json' },
    });
    const p = report.plans.find((x) => (x['id'] as unknown) === 'lla-4x/reconstruct') as Record<string, unknown>;
    expect(p).toMatchObject({
      codec: { kind: 'lla', rankK: 96, rankV: 160, ratio: 4 },
      path: 'reconstruct',
      variant: 'fused',
      eviction: null,
      limitedBy: 'kv-cache',
      // The checkpoint, with its 97 norms in f32, and the exit gate padded to two columns without its bias.
      memory: {
        weightsBytes: 2_869_305_346 + 97 * 2048 * 2 + 2 * 2048 - 2,
        codecBytes: NUMBER,
        reservedBytes: NUMBER,
        workspaceBytes: NUMBER,
        kvBytesPerToken: 196_608,
        kvBytesPerSequence: 805_306_368,
        inFlightBytesPerSequence: 393_216,
        kvBytesAt1M: 206_158_430_208,
        prefillPeakBytes: NUMBER,
      },
      maxBatch: { exact: NUMBER, onGrid: 128 },
      decode: {
        batch: (p['maxBatch'] as { exact: number }).exact,
        secondsPerStep: { estimate: NUMBER, low: NUMBER, high: NUMBER },
        tokensPerSecond: { estimate: NUMBER, low: NUMBER, high: NUMBER },
        evidence: 'attainable',
        kernels: 'attainable',
      },
    });
    const shares = new Map(report.plans.map((x) => [x['id'] as unknown, x['decode']?.['breakEven']]));
    // Measured; no faster than the full cache even by tuned kernels; faster from a share of their speed on.
    expect([shares.get('full/full'), shares.get('lla-1.33x/reconstruct')]).toEqual([null, null]);
    expect(shares.get('lla-4x/reconstruct')).toBeGreaterThan(0);
    expect(shares.get('lla-4x/reconstruct')).toBeLessThan(1);
    const score = { metric: 'gsm8k', value: 0.8, teacher: 0.794, source: expect.stringMatching(/isocache/) as unknown };
    expect(p['quality']).toContainEqual(expect.objectContaining(score));
  });
  it('2: wrong input', async () => {
    // Of a command, which answers alike in this process: one as a process.
    for (const more of ['', ' --vram 80GB --batch -4', ' --vram 80GB --batch 1.5', ' --vram 80GB --ctx 1e99'])
      expectBadInput(await inProcess(...(words(`plan${more}`) as [string, ...string[]])));
    expectBadInput(await inProcess('plan', '--device', 'h200', '--output', '/dev/null/x'));
    for (const args of [['plna'], ['plan', '--vram', '80GB', '--nope'], ['__proto__'], ['constructor']])
      expectBadInput(run(...args));
  });
  it('0: a script for the completion of a shell', () => {
    for (const more of [[], ['zsh'], ['bash']]) {
      const o = run('completion', ...more);
      if (more.length > 0) expect(o.out.includes('#compdef')).toBe(more[0] === 'zsh');
      expect([o.code, o.err]).toEqual([0, '']);
      expect(o.out).toContain('--get-yargs-completions');
    }
  });
  it('2 with help on stdout when no command is given', () => {
    const o = run();
    expect(o.code).toBe(2);
    expect(o.err).toMatch(/no command/);
  });
  it('3: nothing fits, or no plan meets the targets: which target removed what', async () => {
    const nothing = run('plan', '--vram', '2GB');
    expect([nothing.code, nothing.out]).toEqual([3, '']);
    const asked = ['--device', 'h200', '--min', 'gsm8k=0.99'];
    // What does not fit has no time that could miss.
    for (const [flag, value, target] of [
      ['--tpot', '1us', '--tpot 0.001ms removed'],
      ['--batch', '100000', '--batch 100000 removed'],
    ] as const) {
      const targets = await inProcess('plan', ...asked, flag, value);
      expect(targets.code).toBe(3);
      for (const removed of ['--min gsm8k=0.99 removed', target]) expect(targets.err).toContain(removed);
    }
    const json = run('plan', ...asked, '--format', 'json');
    expect(json.code).toBe(3);
    // Of several devices, or contexts, each is told by its name.
    for (const [flags, ...names] of [
      ['--tpot 1us', 'NVIDIA H100 SXM 80GB: ', 'NVIDIA L4: '],
      ['--ctx 64M,128M --codec full', 'H100 SXM 80GB, 67108864 tokens: ', 'L4, 134217728 tokens: '],
    ] as const) {
      const several = await inProcess('plan', '--device', 'h100,l4', ...words(flags));
      expect(several.code).toBe(3);
      for (const name of names) expect(several.err.split(name), name).toHaveLength(2);
    }
    expect((expectSoundJson(json.out) as { plans: unknown[]; removed: unknown[] }).plans).toEqual([]);
  });
  it('a reader that goes away is no defect', () => {
    const piped = `"${process.execPath}" "${program.cli}" plan --vram 141GB --format json | head -c 10`;
    const out = execFileSync('bash', ['-c', `${piped}; echo; echo "\${PIPESTATUS[0]}"`], { encoding: 'utf8' });
    expect(out.trim().split('\n').at(-1)).toBe('0');
  });
  it('--output writes the file, says so on stderr, --quiet does not', () => {
    const at = join(files.path, 'plan.csv');
    const o = run('plan', '--device', 'h200', '--format', 'csv', '-o', at);
    expect([o.code, o.out]).toEqual([0, '']);
    expect(o.err).toContain(at);
    expect(readFileSync(at, 'utf8')).toMatch(/^version,model,device,/);
    expect(run('plan', '--device', 'h200', '--format', 'csv', '-o', at, '--quiet').err).toBe('');
  });
});

describe('help', () => {
  it('of the program, and its version', () => {
    expect(run('--help')).toMatchObject({ code: 0, out: expect.stringContaining('Exit codes: 0') as unknown });
    expect(JSON.parse(read(join(ROOT, 'package.json')))).toMatchObject({ version: run('--version').out.trim() });
  });
  it('the examples in the help of plan and models answer', async () => {
    const { command: planCommand } = await import('../../src/commands/plan.js');
    const { command: modelsCommand } = await import('../../src/commands/models.js');
    for (const [line] of [...planCommand.examples, ...modelsCommand.examples]) {
      // A reader's own model.
      if (line.includes('./mine')) continue;
      const [command = '', ...args] = line.split(' ');
      const o = await inProcess(command, ...args);
      expect(o.code, `${line}\n${o.err}`).toBe(0);
      expect(o.out.length).toBeGreaterThan(100);
    }
  });
  it('models lists presets and devices, as a table and as JSON', async () => {
    expect(run('models').out).toContain('huginn-3.5b');
    expect((await inProcess('models', '--devices')).out).toContain('rtx-4090');
    const { models } = JSON.parse((await inProcess('models', '--format', 'json')).out) as { models: unknown[] };
    expect(models.length).toBe(PRESETS.length);
  });
});

describe('hostile surroundings', () => {
  const headOf = (description: string): string =>
    `{"schema":"lla-sim/calibration","device":{"description": "${description}"}}`;
  const inFolder = (name: string, content: string | null): { cwd: string } => {
    const cwd = join(files.path, name);
    mkdirSync(join(cwd, 'calibrations'), { recursive: true });
    const at = join(cwd, 'calibrations/x.json');
    if (content === null) execFileSync('mkfifo', [at]);
    else writeFileSync(at, content);
    return { cwd };
  };
  it.each([
    ['a description that is no JSON string', headOf('NVIDIA H200 \\q')],
    ['a description over two lines', headOf('NVIDIA H200 \n')],
    ['nothing but the head of one', headOf('NVIDIA H200')],
    ['no JSON at all', 'hello'],
    ['a pipe that nobody writes', null],
  ])('./calibrations/x.json is %s', (name, content) => {
    expectSound(program.run(words('plan --device h200 --codec full --format json'), inFolder(name, content)));
  });
});
