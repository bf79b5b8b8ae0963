/** A server's full cache in 8-bit floats: exact bytes, its own kernel times, refused where nobody stores it. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { plan, type Plan } from '../../src/index.js';
import { findPreset } from '../../src/geometry/presets.js';
import { OURO } from '../geometry/configs.js';
import { OP_CLASSES } from '../../kernels/op-classes.js';
import { keepsLabel } from '../../src/report/plan-rows.js';
import { aicTables } from '../../src/stacks/import/aic.js';
import { expectBadInput, inProcess } from '../cli/program.js';
import { DATA, parquet, put } from './tables.js';

const of = (cacheType: string, more: object = {}) => plan({ device: 'h200', codec: ['full'], cacheType, ...more });

describe('--weight-type fp8', () => {
  const step = async (device: string, weightType?: 'fp8') => {
    const one = { device, codec: ['full'], model: 'ouro-2.6b', batch: 1, ...(weightType ? { weightType } : {}) };
    return (await plan(one)).plans[0]!.decode.secondsPerStep!;
  };

  it('on a GPU without tables is priced by products in 8 bits, which pay for quantising activations', async () => {
    const [half, whole] = [await step('mi300x', 'fp8'), await step('mi300x')];
    // Small products wait for launches: half of the bytes is not half of the time.
    expect(half.estimate).toBeGreaterThan(0.9 * whole.estimate);
    expect(half.high / half.low).toBeGreaterThan(whole.high / whole.low);
    // 192 runs of a layer with four products, and the head: each is no later than in 16 bits and the slow law's floor.
    expect(half.high).toBeLessThan(whole.high + 769 * 24e-6 * 1.6);
    expect(half.high).toBeGreaterThan(whole.high);
  });

  it('where units do not multiply them, reads half of the bytes at the speed of 16 bits', async () => {
    const [half, whole] = [await step('a800-pcie', 'fp8'), await step('a800-pcie')];
    expect(half.estimate).toBeLessThan(whole.estimate);
  });
});

describe('--cache-type fp8', () => {
  it('takes half the bytes, holds twice the sequences, and is priced by fp8 kernels of the stack', async () => {
    const [half, whole] = [await of('fp8', { batch: 32 }), await of('f16', { batch: 32 })];
    const [a, b] = [half.plans[0] as Plan, whole.plans[0] as Plan];
    expect(a.memory.kvBytesPerToken).toBe(2 * 24 * 4 * 16 * 128);
    expect(2 * a.memory.kvBytesPerSequence).toBe(b.memory.kvBytesPerSequence);
    expect(a.maxBatch.exact / b.maxBatch.exact).toBeCloseTo(2, 0);
    const gain = b.decode.secondsPerStep!.estimate / a.decode.secondsPerStep!.estimate;
    expect(gain).toBeGreaterThan(1.1);
    expect(gain).toBeLessThan(2);
    expect(a.decode.pricedBy!['vLLM 0.24.0']).toBeGreaterThan(0.8);
    expect(a.servedBy).toBe('vLLM 0.24.0');
  });

  it('has no published quality, says so, and is not recommended; the server is told of it', async () => {
    const report = await of('fp8');
    expect(report.answer.verdict).toBe('not-recommended');
    expect(report.answer.serve).toContain(' --kv-cache-dtype fp8 ');
    expect(report.notes.join()).toContain('nothing is published about the quality of a cache in 8-bit floats');
    expect(keepsLabel(report.plans[0] as Plan)).toBe('unknown');
    expect(keepsLabel((await of('int8')).plans[0] as Plan)).toBe('unknown');
    expect(keepsLabel((await of('f16')).plans[0] as Plan)).toBe('100 %');
  });

  it('refuses every other codec and every eviction policy', async () => {
    const all = await plan({ device: 'h200', cacheType: 'fp8', eviction: ['none', 'streaming:4+256'] });
    expect(all.plans.map((p) => p.id)).toEqual(['full@fp8/full']);
    expect(all.refused.map((r) => r.id)).toContain('full/full/streaming:4+256');
    expect(all.refused.filter((r) => /8-bit floats/.test(r.reason)).length).toBeGreaterThan(20);
  });

  it.each(['rtx-4090', 'mi300x'])(
    'on %s, where no kernel of it was measured, is what tuned ones reach',
    async (device) => {
      const { plans, answer } = await of('fp8', { device });
      const { decode, servedBy } = plans[0] as Plan;
      expect([decode.evidence, answer.verdict]).toEqual(['attainable', 'not-recommended']);
      expect(decode.secondsPerStep!.high).toBeGreaterThan(1.4 * decode.secondsPerStep!.estimate);
      expect(servedBy === null).toBe(device === 'mi300x');
    },
  );

  it.each([
    'plan --device h200 --stack attainable',
    'plan --device h200 --codec lla',
    'plan --vram 77GB',
    'run --layers 1 --fill 32',
  ])('%s: refused in one line', async (line) => {
    const [name, ...argv] = line.split(' ');
    const o = await inProcess(name!, ...argv, '--cache-type', 'fp8');
    expectBadInput(o);
    expect(o.err).toMatch(/8-bit floats|fp8 cache/);
  });
});

describe('--weight-type fp8', () => {
  it('halves the weights of layers, and is priced by products of such weights', async () => {
    const [half, whole] = await Promise.all([{ weightType: 'fp8' }, {}].map((s) => of('f16', { ...s, batch: 8 })));
    const { layers, hidden, mlpHidden } = findPreset('ouro-1.4b');
    const saved = layers * (4 * hidden * hidden + 3 * hidden * mlpHidden);
    expect(whole!.plans[0]!.memory.weightsBytes - half!.plans[0]!.memory.weightsBytes).toBe(saved);
    const [a, b] = [half!, whole!].map((r) => r.plans[0]!.decode) as [Plan['decode'], Plan['decode']];
    expect(a.secondsPerStep!.estimate).toBeLessThan(b.secondsPerStep!.estimate);
    expect(a.pricedBy!['vLLM 0.24.0']).toBeGreaterThan(0.8);
    expect(half!.answer.serve).toContain(' --quantization fp8 ');
  });

  it('keeps no score that was published with other weights, and says so', async () => {
    const report = await plan({ device: 'h200', codec: ['full', 'lla'], ratio: [10.67], weightType: 'fp8' });
    expect(new Set(report.plans.map((p) => keepsLabel(p)))).toEqual(new Set(['unknown']));
    expect(report.plans.filter((p) => p.codec.kind === 'lla').every((p) => p.quality.length === 0)).toBe(true);
    expect(report.answer.risks.map((r) => r.message).join()).toContain(
      'nothing is published about ouro-1.4b with weights in fp8',
    );
  });

  it('is that of a config.json that says so, and refused beside it', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'lla-sim-fp8-'));
    try {
      const write = (quantization: object | null): string => {
        const file = join(folder, 'config.json');
        writeFileSync(
          file,
          JSON.stringify({ ...OURO, ...(quantization ? { quantization_config: quantization } : {}) }),
        );
        return file;
      };
      const step = async (more: object): Promise<number> =>
        (await of('f16', { ...more, batch: 4 })).plans[0]!.decode.secondsPerStep!.estimate;
      const asked = await step({ model: write(null), weightType: 'fp8' });
      // What a server rounds is not the stored model: its command says so, and its quality is unknown.
      const rounded = await of('f16', { model: write(null), weightType: 'fp8' });
      expect(rounded.answer.serve).toContain(' --quantization fp8');
      expect([rounded.answer.verdict, keepsLabel(rounded.plans[0] as Plan)]).toEqual(['not-recommended', 'unknown']);
      const stored = write({ quant_method: 'fp8', activation_scheme: 'dynamic' });
      expect(await step({ model: stored })).toBe(asked);
      const whole = await of('f16', { model: stored });
      expect(whole.answer.serve).not.toContain('--quantization');
      expect(keepsLabel(whole.plans[0] as Plan)).toBe('100 %');
      expectBadInput(await inProcess('plan', '--device', 'h200', '--model', stored, '--weight-type', 'fp8'));
      expectBadInput(await inProcess('plan', '--device', 'b300', '--stack', 'vllm-rlt', '--weight-type', 'fp8'));
      // Servers load weights of 32 bits in 16, and their kernels read those.
      writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...OURO, torch_dtype: 'float32' }));
      const wide = await of('f16', { model: join(folder, 'config.json') });
      const usual = await of('f16', { model: write(null) });
      expect(wide.model.weightsBytes).toBe(usual.model.weightsBytes);
      expect(wide.notes.join()).toContain('weights are stored in 32 bits');
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('needs no table: then eight bits are read and sixteen multiplied', async () => {
    const at = (weightType: object) => plan({ device: 'a100-80', codec: ['full'], batch: 1, ...weightType });
    const [half, whole] = await Promise.all([at({ weightType: 'fp8' }), at({})]);
    const seconds = (r: typeof half) => r.plans[0]!.decode.secondsPerStep!.estimate;
    expect(seconds(half)).toBeLessThan(seconds(whole));
  });
});

describe('tables of an fp8 cache', () => {
  const rows = [1, 2, 4, 8].flatMap((batch) =>
    ['bfloat16', 'fp8'].flatMap((cache) => ['bfloat16', 'fp8'].map((attention) => ({ batch, cache, attention }))),
  );
  const generation = {
    batch_size: rows.map((r) => r.batch),
    isl: rows.map(() => 1),
    num_heads: rows.map(() => 16),
    num_key_value_heads: rows.map(() => 0),
    head_dim: rows.map(() => 128),
    attn_dtype: rows.map((r) => r.attention),
    kv_cache_dtype: rows.map((r) => r.cache),
    step: rows.map(() => 4095),
    latency: rows.map((r) => (r.cache === 'fp8' ? 2 : 3) + (r.attention === 'fp8' ? 100 : 0)),
  };

  it('are read apart from those in bf16, without attention that multiplies in 8 bits', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'lla-sim-fp8-'));
    try {
      const path = `${DATA}/h200_sxm/attention/vllm/0.24.0/generation_attention_perf.parquet`;
      put(folder, path, parquet(generation));
      const kinds = aicTables(folder, { gpu: 'h200_sxm', stack: 'vllm', version: null, commit: 'c' });
      const fp8 = kinds.find((k) => k.name === 'attention/generation_attention_perf.parquet/fp8')!;
      const [table, ...others] = await fp8.versions[0]!.read();
      expect([table!.op, table!.fixed, others.length]).toEqual(['decode-attention-fp8', { headDim: 128 }, 0]);
      expect(table!.rows.map((r) => r.seconds)).toEqual([0.002, 0.002, 0.002, 0.002]);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('are of a class that reads one byte a scalar, and bf16 queries', () => {
    const shape = { headDim: 128, heads: 16, kvHeads: 8, group: 2, batch: 3, context: 1000, tokens: 1000 };
    const bytes = (op: keyof typeof OP_CLASSES): number => OP_CLASSES[op].work(shape as never).bytes;
    expect(bytes('decode-attention-fp8')).toBe(3 * 128 * (2 * 16 * 1000 + 4 * 16));
    expect(bytes('decode-attention')).toBe(3 * 128 * (4 * 16 * 1000 + 4 * 16));
    expect(bytes('prefill-attention-grouped-fp8')).toBe(2 * 3 * 1000 * 128 * (8 + 2 * 16));
    expect(bytes('prefill-attention-grouped')).toBe(2 * 3 * 1000 * 128 * (2 * 8 + 2 * 16));
  });
});
