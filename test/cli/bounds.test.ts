/** Files that would take for ever, or all memory, are refused in one line; the largest that are published are read. */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { UserError } from '../../src/errors.js';
import { readTextFile } from '../../src/io/files.js';
import { parseJson } from '../../src/io/json.js';
import { readTokenizer } from '../../src/decoder/tokenizer.js';
import { SafetensorsFile } from '../../src/decoder/safetensors.js';
import { openSharded } from '../../src/decoder/checkpoint.js';
import { MAX_POINTS } from '../../src/schema/calibration.js';
import { fileOf } from '../decoder/files.js';
import { calibration } from './arbitraries.js';
import { expectBadInput, expectRefused, expectSound, inProcess, plan, scratch, words } from './program.js';

const files = scratch();
afterAll(() => files.remove());

/** The message of a UserError. */
function refusal(call: () => unknown): string {
  try {
    call();
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    expect(error.message).not.toContain('\n');
    expect(error.hint).not.toBe('');
    return error.message;
  }
  throw new Error('not refused');
}

const nested = (levels: number, inner = '1'): string =>
  `${'[{"a":'.repeat(levels / 2)}${inner}${'}]'.repeat(levels / 2)}`;

describe('files', () => {
  // The system makes its contents up as they are read: 256 GiB, and a size of 0.
  it.runIf(existsSync('/proc/self/pagemap'))('of size 0 that do not end are refused', () => {
    expect(refusal(() => readTextFile('/proc/self/pagemap', 'scenario', 2 ** 20))).toMatch(
      /more than 1048576 bytes|may not be read|cannot be read/,
    );
  });
  it.runIf(existsSync('/proc/self/status'))('of size 0 that end are read', () => {
    expect(readTextFile('/proc/self/status', 'scenario', 2 ** 20)).toMatch(/^Name:/);
  });
  it.runIf(process.platform !== 'win32')('that are pipes, devices or folders are refused', async () => {
    const pipe = join(files.path, 'pipe.json');
    execFileSync('mkfifo', [pipe]);
    for (const path of [pipe, '/dev/zero', files.path]) {
      expectBadInput(await plan(path));
      for (const flag of ['--model', '--calibration', '--stack'])
        expectBadInput(await plan('--device', 'h200', flag, path));
    }
  });
  it('are read up to their longest size, in UTF-8', () => {
    expect(readTextFile(files.file('a', 'abc\u00e9'), 'x', 5)).toBe('abc\u00e9');
    expect(refusal(() => readTextFile(files.file('a', 'abc\u00e9!'), 'x', 5))).toMatch(/more than 5 bytes/);
    expect(refusal(() => readTextFile(files.file('a', '\ufeffab'), 'x', 4))).toMatch(/more than 4 bytes/);
    const utf16 = Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from('vram', 'utf16le')]);
    expect(refusal(() => readTextFile(files.file('a', utf16), 'x', 99))).toMatch(/is UTF-16/);
    expect(refusal(() => readTextFile(files.file('a', Buffer.from([0x61, 0xff])), 'x', 99))).toMatch(/is not UTF-8/);
  });
});

describe('JSON', () => {
  const rules = { maxValues: 1000, hint: 'write it anew' };
  it('is parsed as JSON.parse does within the bounds', () => {
    for (const text of ['1', ' {"a":[1,{"b":"]}\\",["}]} ', '"\\\\"', nested(64)])
      expect(parseJson(text, 'x', rules)).toEqual(JSON.parse(text));
    expect(parseJson('\ufeff[1]', 'x', { ...rules, byteOrderMark: 'allowed' })).toEqual([1]);
  });
  it.each([
    ['66 levels', nested(66), /deeper than 64/],
    ['20,000 levels', nested(20_000), /more than 1000 values/],
    ['a million values', `[${'1,'.repeat(1_000_000)}1]`, /more than 1000 values/],
    ['a million objects', `[${'{},'.repeat(1_000_000)}1]`, /more than 1000 values/],
    ['brackets without end', '['.repeat(1_000_000), /more than 1000 values/],
    ['a text without end', `"${'\\"'.repeat(1000)}`, /not valid JSON/],
    ['a byte order mark', '\ufeff[1]', /begins with a byte order mark/],
  ])('with %s is refused', (_, text, why) => {
    expect(refusal(() => parseJson(text, 'x', rules))).toMatch(why);
  });
  it('nested 20,000 deep is refused wherever it is read', async () => {
    const model = files.file('config.json', nested(20_000).replace('"a"', '"model_type":"ouro","a"'));
    for (const o of [
      await inProcess('run', '--model', model, '--tokens', '1'),
      await plan('--model', model, '--vram', '80GB'),
      await plan('--calibration', files.file('m.json', nested(20_000))),
      await plan(files.file('s.yaml', `codec: ${nested(20_000)}\n`)),
    ])
      expectBadInput(o);
  });
});

describe('calibrations', () => {
  const ask = (content: unknown) =>
    plan('--calibration', files.file('m.json', JSON.stringify(content)), '--codec', 'full');
  const withPoints = (count: number): unknown => {
    const c = calibration();
    const [kernel] = c.kernels as [(typeof c.kernels)[number]];
    const [sample] = kernel.samples as [(typeof kernel.samples)[number]];
    kernel.samples = Array.from({ length: count }, (_, i) => ({ ...sample, shape: { ...sample.shape, m: 1 + i } }));
    return c;
  };
  it('of the most points of a kernel price', async () => expectSound(await ask(withPoints(MAX_POINTS)), 'table'));
  it('of more are refused', async () => {
    expectRefused(await ask(withPoints(MAX_POINTS + 1)), /holds more than 512 points of matmul f16/);
    expectBadInput(await ask(withPoints(20_000)));
  });
  it('that list a kernel twice, or begin with a byte order mark, are refused', async () => {
    const c = calibration();
    expect((await ask({ ...c, kernels: [...c.kernels, ...c.kernels] })).err).toMatch(/list each kernel once/);
    const marked = files.file('m.json', `\ufeff${JSON.stringify(c)}`);
    expectRefused(await plan('--calibration', marked), /begins with a byte order mark/);
  });
  it('with invisible characters in a label are refused', async () => {
    const c = calibration();
    for (const hidden of ['\u200b', '\u202e', '\u00ad', '\u{e0041}'])
      expectBadInput(await ask({ ...c, device: { ...c.device, description: `NVIDIA${hidden} H200` } }));
  });
});

describe('kernel times', () => {
  const take = (csv: string) => {
    const out = join(files.path, 'out.json');
    return inProcess('import', 'csv', files.file('t.csv', csv), '--device', 'h200', '--stack', 'ours', '-o', out);
  };
  const rows = Array.from({ length: 20 }, (_, i) => `product,${i + 1},2048,6144,${2e-5 + i * 1e-7}`).join('\n');
  it('with a column twice are refused', async () => {
    const o = await take(`op,rows,columns,inner,seconds,rows\n${rows.replaceAll(/$/gm, ',7')}`);
    expectRefused(o, /has the column "rows" twice/);
  });
  it('with a byte order mark, as spreadsheets write it, are read', async () => {
    const o = await take(`\ufeffop,rows,columns,inner,seconds\n${rows}`);
    expect(o.code, o.err).toBe(0);
  });
  it.each([
    ['of millions of short rows', `op,seconds\n${'a,1\n'.repeat(4_000_000)}`],
    ['of millions of columns', `${','.repeat(8_000_000)}\n`],
    ['of one endless cell', `op,seconds\n"${'x'.repeat(15_000_000)}`],
  ])('%s are refused', async (_, csv) => expectBadInput(await take(csv)));
});

describe('tokenizers', () => {
  const NO_STEPS = { normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null };
  const fileOfModel = (model: object, more: object = {}): string =>
    files.file('tokenizer.json', JSON.stringify({ added_tokens: [], ...NO_STEPS, model, ...more }));
  const bpe = { type: 'BPE', vocab: { a: 0, b: 1 }, merges: [], unk_token: '<unk>' };
  const endless = { type: 'Split', pattern: { Regex: '(a+)+$' }, behavior: 'Isolated', invert: false };
  it('whose pattern backtracks for ever are stopped', () => {
    const tokenizer = readTokenizer(fileOfModel(bpe, { pre_tokenizer: endless }), 2, 0.5);
    expect(tokenizer.encode('ab')).toEqual([0, 1]);
    expect(refusal(() => tokenizer.encode(`${'a'.repeat(60)}b`))).toMatch(/cannot encode this text within 0.5 s/);
    expect(tokenizer.encode('ab')).toEqual([0, 1]);
    const replace = { type: 'Replace', pattern: { Regex: '(a+)+$' }, content: '' };
    const vocab = { [`${'a'.repeat(60)}b`]: 0 };
    const decoding = readTokenizer(fileOfModel({ ...bpe, vocab }, { decoder: replace }), 2, 0.5);
    expect(refusal(() => decoding.decode([0]))).toMatch(/cannot decode these tokens within 0.5 s/);
  });
  it.each([
    ['BPE that names one it lacks', bpe],
    ['WordPiece', { type: 'WordPiece', vocab: { a: 0, b: 1 }, continuing_subword_prefix: '##' }],
    ['Unigram', { type: 'Unigram', vocab: Object.entries({ a: -1, b: -2 }) }],
    ['Unigram that says so', { type: 'Unigram', vocab: Object.entries({ a: -1, b: -2 }), unk_id: null }],
  ])('without a token for what is unknown (%s) say so', (_, model) => {
    const tokenizer = readTokenizer(fileOfModel(model), 2);
    expect(refusal(() => tokenizer.encode('azb'))).toMatch(/no token for a part of this text/);
  });
  it('nested 20,000 deep, or of too many values, are refused', () => {
    expect(refusal(() => readTokenizer(files.file('tokenizer.json', nested(20_000)), 2))).toMatch(/nested deeper/);
    const values = `{"a":[${'1,'.repeat(3_000_000)}1]}`;
    expect(refusal(() => readTokenizer(files.file('tokenizer.json', values), 2))).toMatch(/more than 3000000 values/);
  });
});

describe('weights', () => {
  const EMPTY = '{"dtype":"F32","shape":[0],"data_offsets":[0,0]}';
  const header = (tensors: number): Buffer =>
    fileOf(`{${Array.from({ length: tensors }, (_, i) => `"${i}":${EMPTY}`).join()}}`, Buffer.alloc(0));
  const open = (contents: Buffer) => (): void => new SafetensorsFile(files.file('w.safetensors', contents)).close();
  it('of 1.5 million tensors are refused unread, of as many as a file may have read', () => {
    const many = `{${`"x":${EMPTY},`.repeat(1_500_000)}"y":0}`;
    expect(refusal(open(fileOf(many, Buffer.alloc(0))))).toMatch(/beyond the limit of 16 MiB/);
    expect(refusal(open(header(100_001)))).toMatch(/names 100001 tensors, more than 100000/);
    open(header(100_000))();
  });
  it('with an index of the largest published model are looked up, of more values refused', () => {
    const index = (entries: string): string =>
      files.file('model.safetensors.index.json', `{"weight_map":{${entries}}}`);
    const entry = (i: number): string => `"model.layers.${i}.mlp.experts.weight":"model-1.safetensors"`;
    const largest = Array.from({ length: 140_000 }, (_, i) => entry(i)).join();
    expect(refusal(() => openSharded(index(largest)))).toMatch(/model-1.safetensors does not exist/);
    expect(refusal(() => openSharded(index(`${'"a":1,'.repeat(600_000)}"b":1`)))).toMatch(/more than 500000 values/);
  });
});

it('plans a prompt of a billion tokens in chunks', async () => {
  expectSound(await plan(...words('--device h200 --vram 1000TB --ctx 1024M --prefill chunked --format json')));
});
