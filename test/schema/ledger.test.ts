/**
 * The shipped ledger is whole and as its README says; a file with a mistake is refused in one line that names the row.
 */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { UserError } from '../../src/errors.js';
import { isPreset } from '../../src/geometry/presets.js';
import { readModelFile } from '../../src/geometry/model-file.js';
import { FIGURES, USES } from '../../src/schema/ledger.js';
import { readLedger, type Row } from '../../src/schema/ledger-file.js';
import { formatOf } from '../../src/serving/workload/trace-formats.js';

const FOLDER = 'ledger';
const files = readdirSync(FOLDER).filter((name) => name.endsWith('.json'));
const ledgers = files.map((name) => ({ name, ...readLedger(join(FOLDER, name)) }));
const rows: readonly Row[] = ledgers.flatMap((l) => l.rows);
const readme = readFileSync(join(FOLDER, 'README.md'), 'utf8');

const FIRST_MEMORY = Object.keys(FIGURES).indexOf('kvTokens');
const TIMES = Object.keys(FIGURES).slice(0, FIRST_MEMORY);
const has = (row: Row, names: readonly string[]): boolean => names.some((name) => Object.hasOwn(row.figures, name));
const ofTime = rows.filter((row) => has(row, TIMES));
const ofMemory = rows.filter((row) => has(row, Object.keys(FIGURES).slice(FIRST_MEMORY)));
const deviceOf = (row: Row): string => row.device ?? row.deviceName!;
const distinct = (of: (row: Row) => string): string[] => [...new Set(rows.map(of))].sort();

it('counts are those of the README', () => {
  for (const { name, rows: own } of ledgers) {
    const counts = USES.map((use) => own.filter((row) => row.use === use).length);
    expect(readme).toMatch(
      new RegExp(`^\\| \`${name}\` \\| .* \\| ${[own.length, ...counts].join(' \\| ')} \\|$`, 'm'),
    );
  }
  expect(readme).toContain(`${ofTime.length} rows of time, ${ofMemory.length} of memory`);
  expect(readme).toContain(
    `${distinct(deviceOf).length} devices, ${distinct((r) => r.server.name).length} servers, ` +
      `${distinct((r) => r.model).length} models`,
  );
  expect(readme.split('\n').length).toBeLessThanOrEqual(80);
});

it('is as large as it has to be, and small enough to carry', () => {
  const unreached = rows.filter((row) => row.use !== 'out-of-reach');
  const of = (names: readonly Row[]) => unreached.filter((row) => names.includes(row));
  expect(of(ofTime).length).toBeGreaterThanOrEqual(300);
  const starts = of(ofMemory).filter((row) => row.workload.kind === 'boot' && !deviceOf(row).endsWith('not named'));
  expect(starts.length).toBeGreaterThanOrEqual(60);
  expect(new Set(unreached.map(deviceOf)).size).toBeGreaterThanOrEqual(8);
  expect(new Set(unreached.map((row) => row.server.name)).size).toBeGreaterThanOrEqual(3);
  expect(new Set(unreached.map((row) => row.model)).size).toBeGreaterThanOrEqual(10);
  const all = readdirSync(FOLDER, { recursive: true, encoding: 'utf8' }).map((name) => join(FOLDER, name));
  const bytes = all.reduce((sum, path) => sum + (statSync(path).isFile() ? statSync(path).size : 0), 0);
  expect(bytes).toBeLessThan(1.5e6);
});

it('has no server, GPU and model on both sides, but for the named cells', () => {
  const fitted = rows.filter((row) => row.use === 'fits');
  const named = fitted.filter((row) => row.because.startsWith('the named cell of '));
  for (const row of named) expect(row.workload).toMatchObject({ concurrency: 1 });
  const key = (row: Row): string =>
    [
      row.server.name,
      deviceOf(row),
      row.gpus,
      row.model,
      row.precision.weights === 'fp8',
      row.workload.kind === 'boot',
    ].join();
  const sides = new Set(fitted.filter((row) => !named.includes(row)).map(key));
  expect(rows.filter((row) => row.use === 'judges' && sides.has(key(row))).map((row) => row.id)).toEqual([]);
});

it('carries models and traces that rows name, readable, and no others', () => {
  const models = new Set(rows.map((row) => row.model).filter((name) => name.endsWith('.json')));
  const traces = new Set(rows.flatMap((row) => (row.workload.kind === 'trace' ? [row.workload.trace] : [])));
  expect([...models].sort()).toEqual(
    readdirSync(join(FOLDER, 'models'))
      .map((name) => `models/${name}`)
      .sort(),
  );
  // Lengths of a set of prompts, which rows name by their dataset.
  traces.add('traces/sharegpt-lengths.jsonl');
  expect([...traces].sort()).toEqual(
    readdirSync(join(FOLDER, 'traces'))
      .map((name) => `traces/${name}`)
      .sort(),
  );
  for (const name of models) expect(readModelFile(join(FOLDER, name)).layers).toBeGreaterThan(0);
  for (const name of traces) {
    const first = readFileSync(join(FOLDER, name), 'utf8').split('\n')[0]!;
    expect(formatOf(first)).toMatchObject({ format: { name: 'vLLM' } });
  }
  for (const row of rows)
    expect(row.use === 'out-of-reach' || isPreset(row.model) || existsSync(join(FOLDER, row.model)), row.id).toBe(true);
});

const folder = mkdtempSync(join(tmpdir(), 'ledger-'));
afterAll(() => rmSync(folder, { recursive: true }));

const good = () => ({
  schema: 'lla-sim/ledger',
  schemaVersion: 1,
  source: { title: 'ours', url: 'https://example.org/run', licence: 'ours', read: '2026-11-24' } as Record<
    string,
    string
  >,
  defaults: { model: 'ouro-1.4b', device: 'h200', gpus: 1, server: { name: 'vllm' } } as Record<string, unknown>,
  campaigns: [
    {
      id: 'one',
      use: 'judges',
      because: 'ours',
      defaults: { precision: { weights: 'bf16', cache: 'bf16' } },
      rows: [
        {
          id: 'first',
          workload: { kind: 'closed-loop', inputTokens: 1024, outputTokens: 128, concurrency: 4 },
          figures: { tpotSeconds: { mean: 0.02, p99: 0.03 } },
        },
      ] as Record<string, unknown>[],
    },
  ],
});
type Good = ReturnType<typeof good>;
type Change = (file: Good, row: Record<string, unknown>) => void;

function read(change: Change): ReturnType<typeof readLedger> {
  const file = good();
  change(file, file.campaigns[0]!.rows[0]!);
  const path = join(folder, 'mine.json');
  writeFileSync(path, JSON.stringify(file));
  return readLedger(path);
}

it('reads a ledger of three things: source, settings, figures', () => {
  const [row] = read(() => {}).rows;
  expect(row).toMatchObject({ use: 'judges', campaign: 'one', device: 'h200', precision: { cache: 'bf16' } });
});

it('merges what rows share, and replaces a workload of another kind', () => {
  const { rows: merged } = read((file, row) => {
    file.defaults['server'] = { name: 'vllm', version: '0.19.0' };
    file.defaults['open'] = ['flags'];
    row['server'] = { maxNumSeqs: 8 };
    row['open'] = ['lengths'];
    file.defaults['workload'] = { kind: 'rate', requests: 4 };
  });
  expect(merged[0]).toMatchObject({
    server: { name: 'vllm', version: '0.19.0', maxNumSeqs: 8 },
    open: ['flags', 'lengths'],
  });
  expect(merged[0]!.workload).not.toHaveProperty('requests');
});

const WRONG: readonly (readonly [what: string, change: Change, words: RegExp])[] = [
  [
    'a figure without a unit',
    (_, r) => (r['figures'] = { tpot: { mean: 0.02 } }),
    /figures\.tpot .* write tpotSeconds/,
  ],
  ['milliseconds', (_, r) => (r['figures'] = { ttftMs: { mean: 200 } }), /figures\.ttftMs .* write ttftSeconds/],
  [
    'a negative time',
    (_, r) => (r['figures'] = { tpotSeconds: { mean: -0.02 } }),
    /tpotSeconds\.mean must be positive/,
  ],
  ['no figure', (_, r) => (r['figures'] = {}), /figures is empty: write at least one of tpotSeconds/],
  ['an unknown statistic', (_, r) => (r['figures'] = { tpotSeconds: { p75: 1 } }), /p75/],
  ['no licence', (f) => delete f.source['licence'], /source\.licence is missing/],
  ['nowhere to look', (f) => delete f.source['url'], /source must have a url, or repository, commit and path/],
  ['no device', (f) => delete f.defaults['device'], /device must be an id of the catalogue, or else deviceName/],
  ['an unknown device', (_, r) => (r['device'] = 'h30'), /device "h30" is not in the catalogue/],
  [
    'an unknown model',
    (_, r) => (r['model'] = 'models/none.json'),
    /model "models\/none\.json" is neither a name of lla-sim models nor a file in the ledger's folder/,
  ],
  [
    'an unknown trace',
    (_, r) => (r['workload'] = { kind: 'trace', trace: 'none.jsonl' }),
    /trace "none\.jsonl" does not exist/,
  ],
  ['too few GPUs', (_, r) => (r['parallel'] = { tensor: 2 }), /gpus must be the 2 of parallel, not 1/],
  ['a time of a boot', (_, r) => (r['workload'] = { kind: 'boot' }), /tpotSeconds is no figure of a boot/],
  ['an unknown setting', (_, r) => (r['server'] = { maxSeqs: 4 }), /maxSeqs/],
  [
    'no length of outputs',
    (_, r) => delete (r['workload'] as Record<string, unknown>)['outputTokens'],
    /outputTokens is missing/,
  ],
  ['no rows', (f) => (f.campaigns[0]!.rows = []), /campaigns\.0\.rows must have at least 1 entry, not 0/],
  ['no precision', (f) => (f.campaigns[0]!.defaults = {} as never), /precision is missing/],
  [
    'the same id twice',
    (f, r) => f.campaigns[0]!.rows.push({ ...r }),
    /row 2 of one \("first"\): id is that of another/,
  ],
  ['another use without a reason', (_, r) => (r['use'] = 'out-of-reach'), /differs in use .* without because/],
  ['both sides', (f, r) => ((f.campaigns[0]!.use = 'fits'), (r['use'] = 'judges')), /judges in a campaign that fits/],
  [
    'two named cells',
    (f, r) => {
      Object.assign(r, { use: 'fits', because: 'named' });
      f.campaigns[0]!.rows.push({ ...r, id: 'second' });
    },
    /row 2 of one \("second"\): is the second that fits/,
  ],
  ['an unknown field of the file', (f) => Object.assign(f, { rows: [] }), /file has an unknown field "rows"/],
  [
    'a word that is none of a list',
    (f) => Object.assign(f.campaigns[0]!, { use: 'guess' }),
    /use must be one of fits, judges, out-of-reach, not "guess"/,
  ],
  [
    'a kind of workload that is none',
    (_, r) => Object.assign(r, { workload: { kind: 'decode' } }),
    /workload\.kind must be one of decode-only, closed-loop, .*, boot, not "decode"/,
  ],
  [
    'a mistyped preset',
    (_, r) => (r['model'] = 'ouro-1.5b'),
    /model "ouro-1.5b" is neither a name .* nor a file in the ledger's folder; did you mean ouro-1.4b\?/,
  ],
  ['another version', (f) => (f.schemaVersion = 2), /schemaVersion/],
];
it.each(WRONG)('refuses %s, a line for each mistake', (_, change, words) => {
  let thrown: unknown;
  try {
    read(change);
  } catch (error) {
    thrown = error;
  }
  expect(thrown).toBeInstanceOf(UserError);
  const { message, exitCode } = thrown as UserError;
  expect(message).toMatch(words);
  for (const line of message.split('\n')) expect(line).toMatch(/^ledger .*mine\.json: /);
  expect(exitCode).toBe(2);
});

it('names all mistakes of all rows, a wrong use beside the others of its row', () => {
  const wrong = (): unknown =>
    read((file, row) => {
      file.campaigns[0]!.rows.push({ ...row, id: 'second', device: 'h30' }, { ...row, id: 'third', repeats: 0 });
      Object.assign(row, {
        use: 'judge',
        figures: { tpot: { mean: 1 }, ttftMs: { mean: 1 } },
        device: 'h31',
        repeats: 0,
      });
    });
  let message = '';
  try {
    wrong();
  } catch (error) {
    message = (error as Error).message;
  }
  const lines = message.split('\n');
  for (const words of [/\("first"\): use /, /\("first"\): figures\.tpot is/, /\("first"\): figures\.ttftMs is/])
    expect(lines.filter((line) => words.test(line))).toHaveLength(1);
  for (const words of [
    /\("first"\): repeats /,
    /\("first"\): device "h31"/,
    /\("second"\): device "h30"/,
    /\("third"\): repeats /,
  ])
    expect(lines.filter((line) => words.test(line))).toHaveLength(1);
});
