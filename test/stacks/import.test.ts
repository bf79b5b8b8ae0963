/** `lla-sim import`: what it writes, and what it says of tables that are none. */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { stackFileSchema } from '../../src/stacks/stack-schema.js';
import { aicTables, compareVersions } from '../../src/stacks/import/aic.js';
import { StackPredictor } from '../../src/stacks/predict.js';
import { expectBadInput, inProcess, type Outcome } from '../cli/program.js';
import { DATA, gemm, gemmPath, parquet, put, type Columns } from './tables.js';

const seed = (Date.now() ^ process.pid) >>> 0;
let checkout: string;
let count = 0;
beforeAll(() => {
  checkout = mkdtempSync(join(tmpdir(), 'lla-sim-import-'));
});
afterAll(() => rmSync(checkout, { recursive: true }));

/** A fresh folder that holds these files. */
function folderWith(files: Readonly<Record<string, Uint8Array | string>>): string {
  const folder = join(checkout, String(count++));
  for (const [path, bytes] of Object.entries(files)) put(folder, path, bytes);
  return folder;
}

/** The table without its times. */
function withoutLatency({ latency: _, ...rest }: Columns): Columns {
  return rest;
}

const aic = (folder: string, ...more: string[]): Promise<Outcome> => aicOf('vllm', folder, ...more);
const aicOf = (stack: string, folder: string, ...more: string[]): Promise<Outcome> =>
  inProcess('import', 'aic', folder, '--gpu', 'h200_sxm', '--stack', stack, '-o', join(folder, 'out.json'), ...more);

const read = (folder: string) => stackFileSchema.parse(JSON.parse(readFileSync(join(folder, 'out.json'), 'utf8')));

describe(`import aic (seed ${seed})`, () => {
  it('writes a file that predicts the times, with its sources and no other column', async () => {
    const folder = folderWith({
      [gemmPath('0.9.1')]: parquet(gemm(seed, 3)),
      [gemmPath('0.24.0')]: parquet(gemm(seed)),
    });
    const outcome = await aic(folder, '--commit', 'c'.repeat(40));
    expect(outcome.code, outcome.err).toBe(0);
    const text = readFileSync(join(folder, 'out.json'), 'utf8');
    expect(text).not.toMatch(/secret|home/);
    const file = read(folder);
    expect(file.version).toBe('0.24.0');
    expect(file.sources[0]).toMatchObject({ path: gemmPath('0.24.0'), commit: 'c'.repeat(40), licence: 'Apache-2.0' });
    const price = new StackPredictor(file).predict('product', { rows: 64, columns: 2048, inner: 2048 })!;
    const expected = 3e-6 + (2 * (64 * 2048 + 2048 * 2048 + 64 * 2048)) / 2.9e12;
    expect(price.estimate / expected).toBeGreaterThan(0.95);
    expect(price.estimate / expected).toBeLessThan(1.05);
    expect(new StackPredictor(file).predict('norm', { tokens: 1, width: 4096 })).toBeNull();
  });

  it('takes off what TensorRT-LLM does not do, of a version that has a table of it', async () => {
    const at = (folder: string, version: string, file: string): string =>
      `${DATA}/h200_sxm/${folder}/trtllm/${version}/${file}_perf.parquet`;
    const products: Columns = { ...gemm(seed), gemm_dtype: Array<string>(90).fill('fp8') };
    const { m, k } = products as Record<string, number[]>;
    // Half of the 3 µs that every product takes at least.
    const saved: Columns = { quant_dtype: m!.map(() => 'fp8'), m: m!, k: k!, latency: m!.map(() => 1.5e-3) };
    const folder = folderWith({
      [at('gemm', '1.3.0', 'gemm')]: parquet(products),
      [at('quantize', '1.3.0', 'computescale')]: parquet(saved),
      [at('quantize', '1.3.0', 'scale_matrix')]: parquet(saved),
      [at('gemm', '1.4.0', 'gemm')]: parquet(products),
    });
    expect((await aicOf('trtllm', folder)).code).toBe(0);
    const file = read(folder);
    const less = at('quantize', '1.3.0', 'computescale');
    expect(file.sources).toEqual([
      expect.objectContaining({ path: at('gemm', '1.3.0', 'gemm'), less, rowsUsed: 90 }),
      expect.objectContaining({ path: at('quantize', '1.3.0', 'scale_matrix') }),
    ]);
    const tables = new StackPredictor(file);
    const price = tables.predict('product-fp8', { rows: 1, columns: 512, inner: 512 })!;
    expect(price.estimate / 1.68e-6).toBeGreaterThan(0.9);
    expect(price.estimate / 1.68e-6).toBeLessThan(1.1);
    expect(tables.predict('quantise', { tokens: 1, width: 512 })!.estimate).toBeCloseTo(1.5e-6, 8);
  });

  it('passes over a version whose times are impossible, and says so', async () => {
    const folder = folderWith({
      [gemmPath('0.19.0')]: parquet(gemm(seed)),
      [gemmPath('0.24.0')]: parquet(gemm(seed, 4)),
    });
    const outcome = await aic(folder);
    expect(outcome.code).toBe(0);
    expect(outcome.err).toMatch(/0\.24\.0.*of 90 rows of product are faster than the GPU can be; table not used/);
    expect(read(folder).version).toBe('0.19.0');
    expect(read(folder).dropped.join()).toMatch(/0\.24\.0/);
  });

  it('drops a time far above those of all shapes around it, and keeps those of a slow kernel', async () => {
    const times = gemm(seed);
    const latency = times['latency'] as number[];
    const [m, n, k] = ['m', 'n', 'k'].map((name) => times[name] as number[]);
    const one = latency.findIndex((_, i) => m![i] === 64 && n![i] === 2048 && k![i] === 2048);
    const slow = latency.map((ms, i) => (i === one ? 20 : m![i] === 1 ? 5 : 1) * ms);
    const folder = folderWith({ [gemmPath('0.24.0')]: parquet({ ...times, latency: slow }) });
    const outcome = await aic(folder);
    expect(outcome.err).toMatch(/1 of 90 rows of product take over 1.5 times as long as all shapes around them; rows/);
    const file = read(folder);
    expect(file.sources[0]).toMatchObject({ rowsUsed: 89, rowsDropped: 1 });
    const price = new StackPredictor(file).predict('product', { rows: 64, columns: 2048, inner: 2048 })!;
    expect(price.estimate / (latency[one]! * 1e-3)).toBeLessThan(1.2);
  });

  it('reads every row of attention whose types and heads are ours, and no other', async () => {
    const at = (room: string, file: string): string => `${DATA}/h200_sxm/${room}/vllm/0.24.0/${file}_perf.parquet`;
    const bf16 = 'bfloat16';
    const attention: Columns = {
      batch_size: [1, 2, 3, 4, 5, 6, 7],
      isl: [1, 16, 16, 16, 16, 16, 16],
      num_heads: [8, 8, 8, 8, 8, 8, 8],
      // 0 stands for as many as there are query heads.
      num_key_value_heads: [0, 8, 2, 3, 8, 8, 8],
      head_dim: [64, 128, 128, 128, 96, 128, 128],
      kv_cache_dtype: [bf16, bf16, bf16, bf16, bf16, 'fp8', 'fp8'],
      attn_dtype: [bf16, bf16, bf16, bf16, bf16, bf16, 'fp8'],
      step: [0, 0, 5, 0, 0, 0, 0],
      window_size: [0, 0, 0, 0, 0, 0, 0],
      latency: [1, 2, 3, 4, 5, 6, 7],
    };
    const folder = folderWith({
      [at('attention', 'generation_attention')]: parquet(attention),
      [at('attention', 'context_attention')]: parquet(attention),
      [at('mla', 'generation_mla')]: parquet({
        num_heads: [1, 16, 16],
        batch_size: [1, 4, 4],
        isl: [1, 32, 32],
        step: [0, 7, 7],
        kv_cache_dtype: [bf16, bf16, 'fp8'],
        latency: [1, 2, 3],
      }),
    });
    const kinds = aicTables(folder, { gpu: 'h200_sxm', stack: 'vllm', version: null, commit: '' });
    const tables = (await Promise.all(kinds.flatMap((kind) => kind.versions.map((v) => v.read())))).flat();
    expect(Object.fromEntries(tables.map((t) => [`${t.op} ${Object.values(t.fixed).join(' ')}`, t.rows]))).toEqual({
      'decode-attention 64': [{ shape: { heads: 8, batch: 1, context: 1 }, seconds: 1e-3 }],
      'decode-attention 128': [{ shape: { heads: 8, batch: 2, context: 16 }, seconds: 2e-3 }],
      'decode-attention-grouped 128': [{ shape: { kvHeads: 2, group: 4, batch: 3, context: 21 }, seconds: 3e-3 }],
      'decode-attention-fp8 128': [{ shape: { heads: 8, batch: 6, context: 16 }, seconds: 6e-3 }],
      'prefill-attention 64': [{ shape: { heads: 8, batch: 1, tokens: 1 }, seconds: 1e-3 }],
      'prefill-attention 128': [{ shape: { heads: 8, batch: 2, tokens: 16 }, seconds: 2e-3 }],
      'prefill-attention-fp8 128': [{ shape: { heads: 8, batch: 6, tokens: 16 }, seconds: 6e-3 }],
      'decode-attention-latent 512 64': [
        { shape: { heads: 1, batch: 1, context: 1 }, seconds: 1e-3 },
        { shape: { heads: 16, batch: 4, context: 39 }, seconds: 2e-3 },
      ],
    });
  });

  it('takes the version that is asked for', async () => {
    const folder = folderWith({ [gemmPath('0.9.1')]: parquet(gemm(seed)), [gemmPath('0.24.0')]: parquet(gemm(seed)) });
    expect((await aic(folder, '--version', '0.9.1')).code).toBe(0);
    expect(read(folder).version).toBe('0.9.1');
    expectBadInput(await aic(folder, '--version', '7'));
  });

  it.each<[string, () => Uint8Array | string, RegExp]>([
    [
      'a Git LFS pointer',
      () => 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n',
      /Git LFS pointer/,
    ],
    ['a table without a column', () => parquet(withoutLatency(gemm(seed))), /lacks the column "latency"/],
    ['half a file', () => parquet(gemm(seed)).slice(0, 700), /no readable parquet/],
    ['an empty file', () => '', /no readable parquet/],
    ['another file', () => '{"a": 1}', /no readable parquet/],
    [
      'a table with no rows of its types',
      () => parquet({ ...gemm(seed), gemm_dtype: Array<string>(90).fill('nvfp4') }),
      /no rows/,
    ],
    ['times that cannot be', () => parquet(gemm(seed, 50)), /faster than the GPU can be/],
    ['times in another unit', () => parquet(gemm(seed, 1 / 1000)), /give times in seconds/],
  ])('refuses %s in one line, and writes nothing', async (_, bytes, message) => {
    const given = bytes();
    const folder = folderWith({ [gemmPath('0.24.0')]: given });
    const outcome = await aic(folder, '--quiet');
    expectBadInput(outcome);
    expect(outcome.err).toMatch(message);
    expect(existsSync(join(folder, 'out.json'))).toBe(false);
  });

  it('refuses folders and words that mean nothing', async () => {
    const folder = folderWith({ [gemmPath('0.24.0')]: parquet(gemm(seed)), 'x/y': '' });
    const out = ['-o', join(folder, 'out.json')];
    for (const argv of [
      ['aic', join(folder, 'x'), '--gpu', 'h200_sxm', '--stack', 'vllm', ...out],
      ['aic', join(folder, 'nowhere'), '--gpu', 'h200_sxm', '--stack', 'vllm', ...out],
      ['aic', folder, '--gpu', '../h200_sxm', '--stack', 'vllm', ...out],
      ['aic', folder, '--gpu', 'h200_sxm', '--stack', 'constructor', ...out],
      ['aic', folder, '--gpu', 'h200_sxm', '--stack', 'sglang', ...out],
      ['aic', folder, '--stack', 'vllm', ...out],
      ['aic', folder, '--gpu', 'h200_sxm', '--stack', 'vllm'],
      ['aic', ...out],
      ['gguf', folder, ...out],
      ['llmservingsim', folder, '--gpu', 'RTX4090', ...out],
      ['llmservingsim', folder, '--gpu', 'RTX4090', '--stack', 'vllm', ...out],
      ['csv', join(folder, 'nothing.csv'), '--stack', 'ours', '--device', 'h200', ...out],
      [...out],
    ])
      expectBadInput(await inProcess('import', ...argv));
    expect(existsSync(join(folder, 'out.json'))).toBe(false);
  });

  it('survives every damage to a table: a sound file, or one line and nothing written', async () => {
    const whole = parquet(gemm(seed));
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.nat(whole.length - 1), fc.nat(255)), { minLength: 1, maxLength: 6 }),
        fc.option(fc.nat(whole.length), { freq: 3 }),
        async (changes, end) => {
          const bytes = whole.slice(0, end ?? whole.length);
          for (const [at, value] of changes) if (at < bytes.length) bytes[at] = value;
          const folder = folderWith({ [gemmPath('0.24.0')]: bytes });
          const outcome = await aic(folder, '--quiet');
          if (outcome.code === 0) read(folder);
          else {
            expectBadInput(outcome);
            expect(existsSync(join(folder, 'out.json'))).toBe(false);
          }
        },
      ),
      { numRuns: 16, seed },
    );
  });
});

describe('import csv', () => {
  const times = (): string => {
    const columns: Columns = gemm(seed);
    const lines = columns['m']!.map(
      (m, i) => `product,${m},${columns['n']![i]},${columns['k']![i]},${Number(columns['latency']![i]) / 1e3}`,
    );
    return ['op,rows,columns,inner,seconds', ...lines].join('\n');
  };
  const csv = (folder: string, stack = 'ours', ...more: string[]): Promise<Outcome> =>
    inProcess(
      'import',
      'csv',
      join(folder, 't.csv'),
      '--stack',
      stack,
      '--device',
      'h200',
      '-o',
      join(folder, 'out.json'),
      ...more,
    );

  it('writes a file', async () => {
    const folder = folderWith({ 't.csv': times() });
    const outcome = await csv(folder);
    expect(outcome.code, outcome.err).toBe(0);
    expect(read(folder)).toMatchObject({ stack: 'ours', device: 'h200' });
    expect(read(folder).tables[0]!.op).toBe('product');
  });

  it('says what it leaves out, and which repetitions contradict each other', async () => {
    const few = Array.from({ length: 11 }, (_, i) => `norm,${i + 1},2048,,${(i + 1) * 1e-6}`);
    const [head, ...rows] = times().split('\n') as [string, ...string[]];
    const products = rows.map((row) => {
      const [op, m, n, k, seconds] = row.split(',');
      return [op, '', '', n, k, m, seconds].join(',');
    });
    expect(head).toBe('op,rows,columns,inner,seconds');
    const norms = few.map((row) => {
      const [op, tokens, width, , seconds] = row.split(',');
      return [op, tokens, width, '', '', '', seconds].join(',');
    });
    const slower = products[0]!.split(',');
    slower[6] = String(2 * Number(slower[6]));
    const table = ['op,tokens,width,columns,inner,rows,seconds', ...products, slower.join(','), ...norms].join('\n');
    const folder = folderWith({ 't.csv': table });
    const { code, err } = await csv(folder);
    expect(code, err).toBe(0);
    expect(err).toMatch(/t\.csv: norm has 11 of at least 12 shapes; table not used/);
    expect(err).toMatch(/t\.csv: product: times of rows \d+, columns \d+, inner \d+ are up to 2 times apart/);
    const { dropped, tables } = read(folder);
    expect(tables.map(({ op }) => op)).toEqual(['product']);
    expect(dropped).toEqual([
      expect.stringContaining('of such rows the median is taken'),
      expect.stringContaining('norm'),
    ]);
  });

  it('takes names that mean nothing else, and the version of a server', async () => {
    const folder = folderWith({ 't.csv': times() });
    for (const stack of ['lla-sim', 'attainable', 'vllm-rlt', 'transformers', 'vllm'])
      expectBadInput(await csv(folder, stack));
    expectBadInput(await csv(folder, 'ours', '--check'));
    expect(existsSync(join(folder, 'out.json'))).toBe(false);
    expect((await csv(folder, 'vllm', '--version', '0.24.0')).code).toBe(0);
    expect(read(folder)).toMatchObject({ stack: 'vllm', version: '0.24.0' });
  });

  it('survives every damage to it', async () => {
    const whole = times();
    await fc.assert(
      fc.asyncProperty(
        fc.nat(whole.length),
        fc.nat(40),
        fc.constantFrom('', ',', '\n', '"', '-1', '1e99', 'NaN', '\u0000', 'op', '0x10'),
        async (at, length, by) => {
          const folder = folderWith({ 't.csv': whole.slice(0, at) + by + whole.slice(at + length) });
          const outcome = await csv(folder);
          if (outcome.code === 0) read(folder);
          else expectBadInput(outcome);
        },
      ),
      { numRuns: 24, seed },
    );
  });
});

describe('versions', () => {
  it('are ordered as releases are', () => {
    const order = ['0.5.6', '0.5.6.post2', '0.5.9', '0.5.10', '1.2.0rc5', '1.3.0rc10', '1.3.0rc20', '1.3.0'];
    expect([...order].reverse().sort(compareVersions)).toEqual(order);
  });
});
