/** Broken and hostile files, one fault each: scenarios, model configs, calibrations and kernel times. */
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import type { Calibration } from '../../src/schema/calibration.js';
import { SEED } from '../gpu/random.js';
import { calibration, CONFIG, mutate, pathsIn } from './arbitraries.js';
import { expectBadInput, expectRefused, expectSound, expectSoundJson, plan, scratch, words } from './program.js';

/** Sizes and numbers that are drawn, others by each seed. */
const CASES = Number(process.env['LLA_SIM_CASES'] ?? 100);

const files = scratch();
afterAll(() => files.remove());

describe('scenario files', () => {
  const nine = (word: string): string => Array<string>(9).fill(word).join();
  it.each([
    ['a key with a newline and an escape', 'vram: 80GB\n"a\\nb\\e[31m": 1\n'],
    ['a metric named __proto__', 'vram: 80GB\nmin: {"__proto__": 1}\n'],
    ['an infinite number', 'vram: .inf\n'],
    ['not a number', 'batch: .nan\nvram: 80GB\n'],
    ['a key twice', 'vram: 80GB\nvram: 90GB\n'],
    ['two documents', 'vram: 80GB\n---\nvram: 90GB\n'],
    ['nothing', ''],
    ['a list', '- vram\n'],
    ['a word', 'hello'],
    ['a billion laughs', `a: &a [${nine('x')}]\nb: &b [${nine('*a')}]\nc: &c [${nine('*b')}]\nd: [${nine('*c')}]\n`],
    ['a depth of thousands', `codec: ${'['.repeat(5000)}${']'.repeat(5000)}\n`],
    ['bytes that are no text', '\u0000\u0001\u0002'],
    ['50,000 tags', `codec: [${'!a x,'.repeat(50_000)}]\n`],
    ['as many tags as a file may hold', `codec: [${'!a x,'.repeat(6500)}]\n`],
    ['as many errors', '}'.repeat(2 ** 15)],
    ['as many keys', Array.from({ length: 3500 }, (_, i) => `a${i}: 1`).join('\n')],
    ['as many levels', '- '.repeat(2 ** 14)],
    ['one long line without a key', 'x'.repeat(2 ** 15)],
    ['an alias with a long name', `a: *${'x'.repeat(30_000)}`],
  ])('%s is refused in one line', async (_name, text) => {
    expectBadInput(await plan(files.file('s.yaml', text), '--format', 'json'));
  });
  it('says where it is no YAML', async () => {
    expect((await plan(files.file('s.yaml', 'vram: 80GB\ncodec: [full\n'))).err).toMatch(/at line 3, column 1/);
  });
  it.each([
    ['name: 5', 'name must be text, not 5'],
    ['min: {gsm8k: high}', 'min.gsm8k must be a number, not \\"high\\"'],
    ['codec: []', 'codec must have at least 1 entry, not 0'],
    ['workload: 5', 'workload must be a map of fields, not 5'],
  ])('%s is answered with the rule, the value and what to do', async (line, words) => {
    const o = await plan(files.file('s.yaml', `vram: 80GB\n${line}\n`));
    expectRefused(o, `: ${words.replaceAll('\\', '')}; correct the field`);
  });
  it('two megabytes are refused unread', async () =>
    expectBadInput(await plan(files.file('big.yaml', Buffer.alloc(2 ** 21, 'a')))));
  it('a directory, a missing file, a name with a newline', async () => {
    const missing = ['none.yaml', 'a\nb\u001b[2J.yaml'].map((name) => join(files.path, name));
    for (const path of [files.path, ...missing, 'x'.repeat(5000), '/dev/null']) expectBadInput(await plan(path));
  });
});

describe('model configs', () => {
  const question = ['--vram', '80GB', '--codec', 'full,lla,cla', '--ratio', '4', '--format', 'json'];
  it('of any size within the limits: a sound answer', async () => {
    const size = (max: number) => fc.oneof(fc.integer({ min: 1, max }), fc.constantFrom(1, 2, max));
    await fc.assert(
      fc.asyncProperty(
        fc.record({
          num_hidden_layers: size(1000),
          total_ut_steps: size(1024),
          kv: size(64),
          group: size(16),
          half: size(512),
          hidden_size: size(2 ** 17),
          intermediate_size: size(2 ** 20),
          vocab_size: size(2 ** 24),
        }),
        async ({ kv, group, half, ...sizes }) => {
          const heads = { num_key_value_heads: kv, num_attention_heads: kv * group, head_dim: 2 * half };
          const config = files.file('config.json', JSON.stringify({ ...CONFIG, ...sizes, ...heads }));
          const asked = '--vram 1000TB --device h200 --codec full,lla,lla-2d,mla-head --format json';
          expectSound(await plan('--model', config, ...words(asked)));
        },
      ),
      { numRuns: Math.ceil(CASES / 16), seed: SEED },
    );
  });
  it('a published model by its own config plans like its preset, without its published quality', async () => {
    const of = async (model: string) =>
      expectSoundJson((await plan('--model', model, ...question)).out) as {
        plans: { maxBatch: unknown; memory: unknown; quality: unknown[] }[];
      };
    const [own, preset] = [await of(files.file('config.json', JSON.stringify(CONFIG))), await of('ouro-1.4b')];
    expect(own.plans.map((p) => [p.maxBatch, p.memory])).toEqual(preset.plans.map((p) => [p.maxBatch, p.memory]));
    expect(own.plans.every((p) => p.quality.length === 0)).toBe(true);
  });
});

describe('calibrations', () => {
  const good = calibration();
  const ask = (content: unknown, ...more: string[]) => {
    const text = typeof content === 'string' ? content : JSON.stringify(content);
    return plan('--calibration', files.file('m.json', text), ...words('--codec full --format json'), ...more);
  };

  it('a sound one prices, and its kernel counts as measured', async () => {
    const o = await ask(good);
    expect(o.code, o.err).toBe(0);
    const report = expectSoundJson(o.out) as {
      device: { name: string; pricing: string };
      plans: { decode: { evidenceShare: Record<string, number> } }[];
      notes: string[];
    };
    expect(report.device).toMatchObject({ name: 'NVIDIA H200 SXM', vramBytes: 143_771 * 2 ** 20 });
    expect(report.plans[0]?.decode.evidenceShare['roofline']).toBeLessThan(0.95);
    expect(report.notes.join()).not.toContain('stale');
  });
  it('a stale kernel is said to be stale, and priced by roofline', async () => {
    const o = await ask({ ...good, kernels: good.kernels.map((k) => ({ ...k, sourceHash: 'other' })) });
    const report = expectSoundJson(o.out) as { plans: { decode: { evidence: string } }[]; notes: string[] };
    expect(report.notes.join()).toMatch(/stale for matmul/);
    expect(report.plans[0]?.decode.evidence).toBe('roofline');
  });
  it('any positive number anywhere: a sound answer or one line', async () => {
    const numbers = pathsIn(good).filter(
      (p) => typeof p.reduce<unknown>((v, k) => (v as Record<string | number, unknown>)[k], good) === 'number',
    );
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...numbers),
        fc.oneof(
          fc.double({ min: 0, noNaN: true, noDefaultInfinity: true }),
          fc.constantFrom(0, 5e-324, 1e-300, 1e-9, 1e9, 1e100, 1.7e308),
        ),
        async (path, value) => {
          expectSound(await ask(mutate(good, path, 'replace', value)));
        },
      ),
      { numRuns: CASES, seed: SEED },
    );
  });
  it.each([
    ['a rate of almost nothing', (c: Calibration) => void (c.ceilings.readBytesPerSecond = 1e-300)],
    ['an endless submission', (c: Calibration) => void (c.overheads.submitSeconds = 1e308)],
    [
      'more memory than there is',
      ({ device }: Calibration) => Object.assign(device, { memoryBytes: 1e300, description: 'x' }),
    ],
    ['a description with an escape', (c: Calibration) => void (c.device.description = 'foo\n\u001b[31mbar')],
  ])('%s never reaches the result', async (_name, change) => {
    const c = calibration();
    change(c);
    const o = await ask(c);
    expectSound(o);
    expect(o.out + o.err).not.toMatch(/[\u0000-\u0009\u000b-\u001f]/);
    const table = await plan('--calibration', join(files.path, 'm.json'), '--codec', 'full');
    expectSound(table, 'table');
    expect(table.out).not.toMatch(/\u001b/);
  });
  it('of a software adapter never stand for a GPU', async () => {
    const software = { ...good, device: { ...good.device, software: true, description: 'llvmpipe' } };
    expectBadInput(await ask(software, '--device', 'h200'));
    const o = await ask(software);
    expect((expectSoundJson(o.out) as { notes: string[] }).notes.join()).toMatch(/software adapter/);
  });
  it('truncated, of another version, of another device', async () => {
    const text = JSON.stringify(good);
    for (const content of [text.slice(0, 500), '', '[]', 'null', JSON.stringify({ ...good, schemaVersion: 3 })])
      expectBadInput(await ask(content));
    expectBadInput(await ask(good, '--device', 'h100'));
  });
});
