/** Thousands of random command lines: exit 0, 2 or 3, never a stack, never a number that is none. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { CODEC_KINDS } from '../../src/codecs/codec.js';
import { DEVICES } from '../../src/devices/catalogue.js';
import { PRESETS } from '../../src/geometry/presets.js';
import { PATH_CHOICES } from '../../src/plan/candidates.js';
import { flagOf, SETTINGS, type SettingName } from '../../src/schema/settings.js';
import { expectSound, plan } from './program.js';

const bytes = fc
  .tuple(
    fc.constantFrom(0.5, 1, 3, 7.5, 24, 80, 141, 999, 123456),
    fc.constantFrom('B', 'kB', 'MB', 'GB', 'TB', 'KiB', 'MiB', 'GiB', 'TiB'),
  )
  .map(([n, u]) => `${n}${u}`);
const sensibleBytes = fc.constantFrom('8GB', '24GB', '80GB', '141GB', '192GiB', '1.1TB');
const tokens = fc.oneof(
  fc.constantFrom('1', '31', '32', '33', '4096', '4k', '64k', '1M', '1024M', '100000'),
  fc.integer({ min: 1, max: 2 ** 30 }).map(String),
);
const whole = (min: number, max: number) => fc.integer({ min, max }).map(String);
const listOf = (item: fc.Arbitrary<string>, max = 3) =>
  fc.array(item, { minLength: 1, maxLength: max }).map((l) => l.join(','));

/** Values that could be right. */
const GOOD: Record<SettingName, fc.Arbitrary<string>> = {
  model: fc.constantFrom(...PRESETS.map((p) => p.name), 'ByteDance/Ouro-1.4B', 'huginn'),
  context: tokens,
  vram: fc.oneof({ weight: 4, arbitrary: sensibleBytes }, { weight: 1, arbitrary: bytes }),
  device: fc.constantFrom(...DEVICES.map((d) => d.id), 'NVIDIA H200 SXM'),
  gpus: fc.constantFrom('1', '1', '2', '4', '5', '8', '11', '16', '55'),
  batch: whole(1, 5000),
  usdPerHour: fc.constantFrom('3.5', '0.0001', '1000000', '12'),
  codec: listOf(fc.constantFrom(...CODEC_KINDS)),
  ratio: listOf(
    fc.oneof(
      fc.constantFrom('1', '1.33', '4', '5.33', '21.33', '128', '100000'),
      fc.double({ min: 1, max: 500, noNaN: true }).map((x) => x.toFixed(3)),
    ),
  ),
  ranks: listOf(fc.tuple(whole(1, 600), whole(1, 600)).map(([k, v]) => `${k}/${v}`)),
  path: listOf(fc.constantFrom(...PATH_CHOICES)),
  eviction: listOf(
    fc.oneof(
      fc.constantFrom('none', 'streaming:4+256', 'h2o:128+132'),
      fc.tuple(fc.constantFrom('streaming', 'h2o'), whole(1, 1e6), whole(1, 1e6)).map(([p, a, b]) => `${p}:${a}+${b}`),
    ),
    2,
  ),
  budget: tokens,
  cacheType: fc.constantFrom('f16', 'bf16', 'f32', 'int8', 'int4'),
  groupSize: whole(8, 4096),
  ropeDim: fc.constantFrom('2', '64', '128', '1024'),
  ropeBranch: fc.constantFrom('shared', 'per-head'),
  utilization: fc.constantFrom('0.1', '0.5', '0.9', '1'),
  reserve: fc.oneof(fc.constantFrom('0', '512MiB', '8GB'), bytes),
  pageTokens: fc.constantFrom('32', '64', '4096', '65536'),
  prefill: fc.constantFrom('one-shot', 'by-layer', 'accumulated', 'chunked'),
  min: fc.constantFrom('gsm8k=0.75', 'gsm8k@isocache=0.7', 'passkey=0.9', 'train-kl=0.1', 'gsm8k=0.5,mmlu=0.1'),
  retrieval: tokens,
  tpot: fc.constantFrom('1us', '20ms', '80ms', '2s', '1000s'),
  ttft: fc.constantFrom('1us', '300ms', '10s', '5m'),
  calibration: fc.constantFrom('/nonexistent.json', '/etc/passwd', '/'),
  import: fc.constantFrom('/nonexistent.csv', '/etc/passwd', '.'),
};

const BAD = fc.oneof(
  fc.constantFrom(
    '',
    ' ',
    '-1',
    '0',
    '1.5',
    '-0',
    '1e308',
    '1e-308',
    'NaN',
    'Infinity',
    '-Infinity',
    '0x10',
    '1_000',
    '１',
    'null',
    'undefined',
    '__proto__',
    'constructor',
    'toString',
    '=',
    'a=b=c',
    '1/0',
    '0/0',
    '-4/9',
    '4+',
    ',',
    ',,',
    '-',
    '--',
    '../..',
    '%00',
    '\u0000',
    '\u001b[2J',
    'a\nb',
    '$(id)',
    '"',
    "'",
    '9'.repeat(400),
    'x'.repeat(5000),
    'streaming:0+0',
    'streaming:1+',
    'h2o:-1+5',
    'h2o:1e9+1e9',
    'gsm8k=',
    'gsm8k=NaN',
    '__proto__=1',
    'gsm8k@=0.1',
    'gsm8k@@=0.1',
  ),
  fc.string({ unit: 'binary', maxLength: 12 }),
  fc.double().map(String),
);

const names = Object.keys(SETTINGS) as SettingName[];
const option = fc
  .constantFrom(...names)
  .chain((name) =>
    fc
      .tuple(
        fc.constant(`--${flagOf(name)}`),
        fc.oneof({ weight: 12, arbitrary: GOOD[name] }, { weight: 1, arbitrary: BAD }),
        fc.boolean(),
      )
      .map(([flag, value, glued]) => (glued ? [`${flag}=${value}`] : [flag, value])),
  );
/** Without this, most questions end at "the memory of the GPU is not given". */
const place = fc.oneof(
  GOOD.vram.map((v) => ['--vram', v]),
  GOOD.device.map((d) => ['--device', d]),
);
/** A narrow choice of candidates keeps thousands of plans cheap. */
const narrow = fc.oneof(
  listOf(fc.constantFrom('full', 'cla', 'kv-quant', 'final-loop'), 2).map((c) => ['--codec', c]),
  fc.tuple(fc.constantFrom('lla', 'lla-2d', 'mla-head'), GOOD.ratio).map(([c, r]) => ['--codec', c, '--ratio', r]),
  GOOD.ranks.map((r) => ['--ranks', r]),
);

const sensible = fc
  .tuple(place, narrow, fc.uniqueArray(option, { maxLength: 5, selector: (o) => o[0]?.split('=')[0] }))
  .map(([p, n, options]) => {
    const taken = new Set([...p, ...n].filter((w) => w.startsWith('--')));
    return [...p, ...n, ...options.filter((o) => !taken.has((o[0] as string).split('=')[0] as string)).flat()];
  });
const wild = fc
  .array(
    fc.oneof(
      { weight: 6, arbitrary: option },
      { weight: 1, arbitrary: BAD.map((b) => [b]) },
      {
        weight: 1,
        arbitrary: fc.constantFrom(
          ['--all'],
          ['--quiet'],
          ['--help=1'],
          ['-o'],
          ['--'],
          ['--no-all'],
          ['--__proto__', '1'],
          ['--toString'],
          ['-x'],
          ['--vram', '80GB'],
        ),
      },
    ),
    { maxLength: 7 },
  )
  .map((l) => l.flat());

describe('plan under random options', () => {
  it('answers sensible questions soundly', async () => {
    const seen = { 0: 0, 2: 0, 3: 0 } as Record<number, number>;
    await fc.assert(
      fc.asyncProperty(sensible, async (argv) => {
        const o = await plan(...argv, '--format', 'json');
        seen[o.code] = (seen[o.code] ?? 0) + 1;
        expectSound(o);
      }),
      { numRuns: 1500 },
    );
    // The generator must reach all three answers, or the property says little.
    for (const code of [0, 2, 3]) expect(seen[code], JSON.stringify(seen)).toBeGreaterThan(30);
  });

  it('withstands nonsense', async () => {
    await fc.assert(
      fc.asyncProperty(wild, async (argv) => {
        expectSound(await plan(...argv.filter((w) => !w.startsWith('-o') && !w.startsWith('--output'))), 'table');
      }),
      { numRuns: 3000 },
    );
  });

  it.each(['table', 'csv', 'markdown'] as const)('prints %s soundly', async (format) => {
    await fc.assert(
      fc.asyncProperty(sensible, fc.boolean(), async (argv, all) => {
        expectSound(await plan(...argv, ...(all ? ['--all'] : []), '--format', format), format);
      }),
      { numRuns: 300 },
    );
  });

  it('gives every plan of a report an id of its own', async () => {
    await fc.assert(
      fc.asyncProperty(sensible, async (argv) => {
        const o = await plan(...argv, '--format', 'json');
        if (o.code !== 0) return;
        const ids = (JSON.parse(o.out) as { plans: { id: string }[] }).plans.map((p) => p.id);
        expect(new Set(ids).size).toBe(ids.length);
      }),
      { numRuns: 500 },
    );
  });

  it('gives the same answer twice', async () => {
    const question = ['--device', 'h200', '--ctx', '16k', '--tpot', '200ms', '--min', 'gsm8k=0.7', '--format', 'json'];
    expect(await plan(...question)).toEqual(await plan(...question));
  });
});
