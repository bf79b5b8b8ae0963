/** `lla-sim run` and `lla-sim validate` as processes: results, messages, exit codes, Ctrl-C. */
import '../gpu/narrow.js';
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { FLASHLOOP, flashloopBytes } from '../../src/codecs/flashloop.js';
import { tinyGeometry } from '../../src/tiny/model.js';
import { requireRoom } from '../../src/commands/model/run-reference.js';
import { parameterCount } from '../../src/geometry/geometry.js';
import { runText } from '../../src/commands/model/run-report.js';
import type { SpeculationReport } from '../../src/commands/model/run-speculate.js';
import { modelTensors } from '../../src/decoder/tensors.js';
import { fabricate } from '../../src/decoder/weights.js';
import { geometryFromConfig } from '../../src/geometry/hf-config.js';
import { safetensors, type PlainTensor } from '../decoder/files.js';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';
import {
  compile,
  expectBadInput,
  expectRefused,
  inProcess,
  OURO_CONFIG,
  scratch,
  words,
  type Outcome,
} from './program.js';

const SIZES = { num_hidden_layers: 2, head_dim: 16, hidden_size: 64, intermediate_size: 96, vocab_size: 160 };
const CONFIG = { ...(JSON.parse(OURO_CONFIG) as object), ...SIZES };
const files = scratch();
const config = files.file('config.json', JSON.stringify(CONFIG));
let program: Awaited<ReturnType<typeof compile>>;
beforeAll(async () => {
  program = await compile();
});
afterAll(() => {
  program.remove();
  files.remove();
});

interface Run {
  tokens: number[][];
  cache: { allocatedBytes: number; bytesPerToken: number; tokensKept: number[] };
  prefillMethod: string;
  tokensPerSecond: number;
  memory: { totalBytes: number } | null;
  warnings: string[];
  text: string[] | null;
}
const parsed = (o: Outcome): Run => {
  expect(o.code, o.err).toBe(0);
  return JSON.parse(o.out) as Run;
};
const runHere = (...args: string[]) => inProcess('run', '--model', config, ...args);

it('says in one line what is wrong with the input', async () => {
  const DRAFTS = [
    ...['--draft-loops 2', '--temperature 1', '--codec lla --ratio 2'],
    ...['--eviction streaming:4+60', '--max-tokens 4 --ctx 5'],
  ];
  for (const asked of [
    ...[' 1,x', ' 160', ' 1 --ctx 3', ' 1 --codec full,lla', ' 1 --codec lla --path full', ' 1 --layers 3'],
    ...[' 1 --weights bf16', ' 1 --batch 2 --stop 3', ' 1 --prefill in-parts', ' 1 --prefill-chunk 0'],
    ...[' 1 --draft-loops 1', ' 1 --draft-tokens 0', ...DRAFTS.map((draft) => ` 1 --draft-tokens 2 ${draft}`)],
  ])
    expectBadInput(await runHere(...words(`--tokens${asked}`)));
  for (const args of [[], ['--text', 'hello']]) expectBadInput(await runHere(...args));
});

it('decodes in float64 without a GPU, what has no kernels too, and says what it cannot do there', async () => {
  const packs = ['--codec', 'flashloop', '--constants', 'group=16,tail=16,loop4=0.25'];
  const o = await inProcess('run', '--reference', '--seed', '7', '--format', 'json', ...packs);
  const r = parsed(o) as Run & { asked: { isRight: boolean[] } };
  expect(r.asked.isRight).toEqual([true]);
  expect(r.memory).toBeNull();
  expect(r.cache.tokensKept).toEqual([68]);
  // 64 tokens of a prompt and 4 generated: 48 are packed, of which at most 16 have a row of loops 3 and 4.
  const g = tinyGeometry();
  const of = { ...FLASHLOOP, group: 16, tail: 16, rows: [1, 1, 0.25, 0.25] };
  const bytes = Array.from({ length: 17 }, (_, rows) => {
    const { streams, index, tail } = flashloopBytes(g, { packed: 48, third: rows, fourth: rows, tail: 20 }, of);
    return streams + index + tail;
  });
  expect(bytes).toContain(r.cache.allocatedBytes);
  expect(runText(r as never)).toContain('held');
  for (const [args, message] of [
    [['--reference', '--batch', '2'], '--batch means nothing with --reference'],
    [['--reference', '--top-p', '0.5'], '--top-p means nothing without --temperature'],
    [['--reference', '--fill', '64', '--model', config], '--fill means nothing with --reference'],
    [['--codec', 'flashloop', '--ratio', '5.19'], 'counted as a prompt has no room for the rows of generated tokens'],
    [['--reference', '--codec', 'melt'], 'which the decoder does not run'],
    [['--reference', '--codec', 'flashloop', '--constants', 'keys=0'], 'a share of the keys above 0 and at most 1'],
    [['--reference', '--codec', 'flashloop', '--constants', 'tail=69'], 'an exact tail of 69 tokens of a context of'],
  ] as const) {
    expectRefused(await inProcess('run', ...args), message);
  }
});

it('refuses weights that do not fit in memory in float64', () => {
  const bytes = 8 * parameterCount(tinyGeometry());
  expect(() => requireRoom(tinyGeometry(), bytes)).not.toThrow();
  expect(() => requireRoom(tinyGeometry(), bytes - 1)).toThrow(/holds the weights of lla-tiny in float64/);
});

describeGpu(`run (LLA_SIM_SEED=${SEED})`, () => {
  it('generates, the same from the same seed, and counts the cache', async () => {
    const sampled = '--tokens 1,2,3 --codec lla --ratio 2 --max-tokens 8 --temperature 1 --top-p 0.9 --batch 2';
    const args = words(`${sampled} --seed ${SEED}`);
    const first = parsed(program.run(['run', '--model', config, '--format', 'json', ...args]));
    expect(first.tokens.map((t) => t.length)).toEqual([8, 8]);
    // Sequences of a batch draw from streams of their own.
    expect(first.tokens[0]).not.toEqual(first.tokens[1]);
    // In another process, too.
    expect(parsed(await runHere('--format', 'json', ...args)).tokens).toEqual(first.tokens);
    // 4 heads x (rankK + rankV = 32) x 2 layers x 2 bytes.
    expect(first.cache).toEqual({ allocatedBytes: 2 * 32 * 512, bytesPerToken: 512, tokensKept: [10, 10] });
    expect(first.tokensPerSecond).toBeGreaterThan(0);
    expect(first.warnings.join()).toContain('mean nothing');
  });

  it('speculates: the tokens of decoding one by one, with every round counted', async () => {
    for (const [model, batch, draft] of [
      [config, '2', []],
      ['lla-tiny', '1', ['--draft-loops', '3']],
    ] as const) {
      const asked = ['--tokens', '1,2,3', '--max-tokens', '24', '--seed', String(SEED)];
      const args = ['--model', model, '--batch', batch, ...asked, '--format', 'json'];
      const plain = parsed(await inProcess('run', ...args));
      const drafted = parsed(await inProcess('run', ...args, '--draft-tokens', '3', ...draft)) as Run & {
        speculation: SpeculationReport;
      };
      expect(drafted.tokens).toEqual(plain.tokens);
      const s = drafted.speculation;
      expect(s.sameTokens).toBe(true);
      expect(s.proposed).toBe(3 * s.rounds);
      expect(s.acceptedUpTo.reduce((sum, share) => sum + share * s.rounds, 0)).toBeCloseTo(s.accepted, 6);
      const made = s.rounds + s.accepted;
      // The last round may make more than is wanted.
      expect(made).toBeGreaterThanOrEqual(23 * Number(batch));
      expect(made).toBeLessThanOrEqual(26 * Number(batch));
      expect(s.passes.draft).toBe((s.rounds / Number(batch)) * 3 * s.draftLoops);
      expect(s.secondsPerToken).toBeGreaterThan(0);
      expect(runText(drafted as never)).toContain('the same tokens');
    }
  });

  it('asks the bundled model for a pass code where nothing else is asked, and it is right', async () => {
    const o = await inProcess('run', '--seed', '7', '--format', 'json');
    expect(o.code, o.err).toBe(0);
    const r = JSON.parse(o.out) as Run & {
      model: { name: string; weights: string };
      asked: { prompt: string; answer: string; isRight: boolean[] };
    };
    expect(r.model).toMatchObject({ name: 'lla-tiny', weights: 'checkpoint' });
    expect(r.asked.prompt).toContain(`code ${r.asked.answer} `);
    expect([r.text, r.asked.isRight]).toEqual([[r.asked.answer], [true]]);
    expect(runText(r as never)).toContain(`${r.asked.answer} (right)`);
    expect(runText({ ...r, asked: { ...r.asked, isRight: [false] } } as never)).toContain('(wrong: the text says');
  });

  it('takes the prompt in as it is asked to: codecs without latents give the same tokens in every way', async () => {
    const made: Run[] = [];
    const asked = `--tokens 1,2,3,4,5,6,7,8 --max-tokens 5 --cache-type f32 --seed ${SEED} --format json`;
    for (const how of ['', 'by-token', 'chunked --prefill-chunk 3', 'by-layer', 'one-shot'])
      made.push(parsed(await runHere(...words(asked + (how && ` --prefill ${how}`)))));
    expect(made.map((r) => r.prefillMethod)).toEqual(['accumulated', 'by-token', 'chunked', 'by-layer', 'one-shot']);
    for (const { tokens } of made) expect(tokens).toEqual(made[0]?.tokens);
  });

  it('decodes a checkpoint: the same tensors from a file give the tokens that fabricating them gives', async () => {
    const folder = join(files.path, 'checkpoint');
    mkdirSync(folder);
    const g = geometryFromConfig(CONFIG, 'checkpoint');
    const made = fabricate(modelTensors(g), { seed: SEED, tiedEmbeddings: g.tiedEmbeddings, codec: 'random' });
    const tensorOf = ({ name, shape }: { name: string; shape: readonly number[] }): [string, PlainTensor] => {
      return [name, { dtype: 'F16', shape: [...shape], values: [...made.read(name)] }];
    };
    const tensors = Object.fromEntries(modelTensors(g).map(tensorOf));
    writeFileSync(join(folder, 'config.json'), JSON.stringify(CONFIG));
    writeFileSync(join(folder, 'model.safetensors'), safetensors(tensors));
    const prompt = ['--tokens', '5,6,7', '--max-tokens', '6', '--format', 'json'];
    const read = parsed(await inProcess('run', '--model', folder, ...prompt));
    expect(read.tokens).toEqual(parsed(await runHere(...prompt, '--seed', String(SEED))).tokens);
    expect(read.warnings.join()).not.toContain('fabricated');
  });

  /** Runs the program, sends it SIGINT in the midst of its work and waits for its end. */
  async function interrupted(args: readonly string[]): Promise<{ code: number | null; out: string; err: string }> {
    const child = spawn(process.execPath, [program.cli, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
    let [out, err] = ['', ''];
    child.stdout.on('data', (chunk: Buffer) => (out += chunk.toString()));
    child.stderr.on('data', (chunk: Buffer) => (err += chunk.toString()));
    const ended = new Promise<number | null>((resolve) => child.on('close', resolve));
    const wait = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));
    // Linux tells when the driver is loaded: from then on it works on the device.
    const maps = `/proc/${child.pid}/maps`;
    if (existsSync(maps))
      while (child.exitCode === null && !/dawn\.node/.test(readFileSync(maps, 'utf8'))) await wait(100);
    else await wait(5000);
    await wait(1500);
    child.kill('SIGINT');
    return { code: await ended, out, err };
  }

  // Of validate memory and capacity, whose attempts are processes of their own.
  it.each([
    [
      `run --model ${config} --tokens 1 --max-tokens 200000 --eviction streaming:4+60 --format json`,
      /error: interrupted after \d+ of 200000 tokens; nothing of it is printed; run it again/,
    ],
    ...['memory', 'capacity'].map((section) => {
      const asked = `validate --only ${section} --format json -o ${join(files.path, 'part.json')}`;
      return [asked, /error: interrupted: no result is printed; run it again/] as const;
    }),
  ] as const)('Ctrl-C, %s: one line, exit code 130, no result in part', async (asked, message) => {
    const { code, out, err } = await interrupted(words(asked));
    expect(code, err).toBe(130);
    expect([out, existsSync(join(files.path, 'part.json'))]).toEqual(['', false]);
    expect(err).toMatch(message);
    expect(err).not.toMatch(/defect|at .*\.js:\d+/);
  });

  it('validate --quick: the capacity holds, tried in processes; steps without a calibration have no prediction', () => {
    // Room for eleven sequences and a third: a process that is about to be limited has some MiB of its own to spare.
    // It ends by itself long before the budget, which a busy machine would spend.
    const asked = ['--quick', '--only', 'capacity,latency', '--budget', '30m'];
    const args = [...asked, '--vram', '192MiB', '--format', 'json'];
    const o = program.run(['validate', ...args, '--seed', String(SEED)]);
    expect(o.code, `${o.err}${o.out.slice(0, 20_000)}`).toBe(0);
    const report = JSON.parse(o.out) as {
      schema: string;
      schemaVersion: number;
      checks: { name: string; status: string; strict: boolean }[];
      notes: string[];
    };
    expect([report.schema, report.schemaVersion]).toEqual(['lla-sim/validate', 1]);
    const statusOf = (name: string): string | undefined => report.checks.find((c) => c.name === name)?.status;
    expect(statusOf('capacity')).toBe(process.platform === 'linux' ? 'holds' : 'not-checked');
    expect(report.checks.filter((c) => c.name.startsWith('step-')).every((c) => !c.strict)).toBe(true);
    // The compiled copy has no calibration.
    expect(statusOf('step-median-error')).toBe('not-checked');
    expect(report.notes.join()).toContain('no calibration');
  });
});
