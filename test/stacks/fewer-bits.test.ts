/** Products whose weights a server keeps in fewer bits than measured kernels read. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { KernelCall } from '../../kernels/registry.js';
import { plan, type Plan } from '../../src/index.js';
import { PEAK_MARGIN } from '../../src/cost/law.js';
import type { Price } from '../../src/cost/evidence.js';
import { findDevice } from '../../src/devices/find.js';
import { readSources } from '../../src/plan/ask/on-disk.js';
import { prepare } from '../../src/plan/ask/prepare.js';
import { OURO } from '../geometry/configs.js';

const folder = mkdtempSync(join(tmpdir(), 'lla-sim-bits-'));
afterAll(() => rmSync(folder, { recursive: true }));

const LLAMA_70B = {
  ...{ model_type: 'llama', hidden_size: 8192, intermediate_size: 28_672, num_hidden_layers: 80, rope_theta: 5e5 },
  ...{ num_attention_heads: 64, num_key_value_heads: 8, vocab_size: 128_256, max_position_embeddings: 131_072 },
  ...{ tie_word_embeddings: false, torch_dtype: 'bfloat16' },
};
const AWQ = { quant_method: 'awq', bits: 4, group_size: 128 };
const WHOLE = { quant_method: 'fp8', activation_scheme: 'dynamic' };
const BLOCKS = { ...WHOLE, weight_block_size: [128, 128] };
const UNPACKED = { quant_method: 'bitsandbytes', load_in_4bit: true };

function file(quantization: object | null, config: object = OURO): string {
  const path = join(folder, 'config.json');
  writeFileSync(path, JSON.stringify({ ...config, ...(quantization ? { quantization_config: quantization } : {}) }));
  return path;
}

/** A product of a Llama-70B's layer by each way of storing its weights. */
async function productsOn(device: string): Promise<(variant: string, rows: number) => Price> {
  const scenario = { device, codec: ['full'] };
  const { request } = prepare(scenario, await readSources(scenario));
  return (variant, rows) =>
    request.pricer!.price({
      ...({ kernel: 'matmul', variant, shape: { groups: 1, m: rows, k: 8192, n: 57_344 } } as KernelCall),
    });
}

describe('weights that a product widens on the way', () => {
  it('are read as they are stored by few rows; many take the time of 16 bits', async () => {
    const price = await productsOn('h100');
    const share = (rows: number): number => price('packed-4.15625', rows).estimate / price('f16', rows).estimate;
    expect(share(1)).toBeGreaterThan(4.15625 / 16);
    expect(share(1)).toBeLessThan(1.15 * (4.15625 / 16));
    expect(share(4096)).toBeGreaterThan(0.99);
    for (let rows = 2; rows <= 4096; rows *= 2) expect(share(rows)).toBeGreaterThanOrEqual(share(rows / 2));
  });

  it('may take as long as 16 bits, or 1.7 times the estimate, and as little as their bytes', async () => {
    const price = await productsOn('h100');
    for (const rows of [1, 16, 64, 256, 4096]) {
      const [packed, whole] = [price('packed-4.15625', rows), price('f16', rows)];
      expect(packed.high).toBe(Math.max(whole.high, 1.7 * packed.estimate));
      expect(packed.low).toBeGreaterThanOrEqual(packed.floor!.memory);
      expect([packed.evidence, packed.by]).toEqual(['attainable', whole.by]);
      expect(packed.floor!.compute).toBe(whole.floor!.compute);
    }
  });

  it('which others write in 16 bits first, may take longer than those', async () => {
    const price = await productsOn('h100');
    const [written, whole] = [price('unpacked-4.5', 1), price('f16', 1)];
    expect(written.estimate).toBe(whole.estimate);
    expect(written.high / whole.high).toBeGreaterThan(2);
    expect(written.high / whole.high).toBeLessThan(2.4);
  });

  it('are those of AWQ: Llama-70B on an H100 reads 40 GB a token, not 141', async () => {
    const { plans, notes } = await plan({ device: 'h100', model: file(AWQ, LLAMA_70B), codec: ['full'], batch: 1 });
    const { secondsPerStep, floor, evidence } = (plans[0] as Plan).decode;
    expect(secondsPerStep!.estimate).toBeLessThan(20e-3);
    expect(secondsPerStep!.high).toBeGreaterThan(50e-3);
    expect(floor!.memory).toBeGreaterThan(11e-3);
    expect(evidence).toBe('attainable');
    expect(notes.join()).toContain('such kernels were not measured: the slow end is the time of 16-bit weights');
  });

  it('are the head’s, too, where a format has tables in fewer bits', async () => {
    // Both have 4.5 bits a weight of a layer.
    const mlx = { bits: 4, group_size: 64 };
    const device = 'rtx-4090';
    const memory = async (more: object): Promise<number> => {
      const { plans } = await plan({ device, codec: ['full'], batch: 1, context: 64, ...more });
      return (plans[0] as Plan).decode.floor!.memory;
    };
    const path = join(folder, 'mlx.json');
    writeFileSync(path, JSON.stringify({ ...OURO, quantization: mlx }));
    const saved = (await memory({ model: file({ ...AWQ, group_size: 40 }) })) - (await memory({ model: path }));
    const head = (OURO.hidden_size * OURO.vocab_size * 11.5) / 8 / findDevice(device).memoryBytesPerSecond;
    expect(saved).toBeGreaterThan(0.9 * head);
    expect(saved).toBeLessThan(1.1 * head);
  });
});

describe('8-bit floats with a scale a block', () => {
  it.each([
    ['h100', 1],
    ['h100', 4096],
    ['l40s', 1],
    ['mi300x', 1],
  ])('on %s, %d rows, take the time of one scale a tensor, and may take 1.4 times that', async (device, rows) => {
    const price = await productsOn(device);
    const [blocks, scaled, whole] = [price('f8-blocks', rows), price('f8', rows), price('f16', rows)];
    expect([blocks.estimate, blocks.low, blocks.floor]).toEqual([scaled.estimate, scaled.low, scaled.floor]);
    // DeepGEMM is for Hopper and Blackwell; other kernels were published that take the time of 16 bits.
    const high = device === 'h100' ? 1.4 * scaled.high : Math.max(1.4 * scaled.high, whole.high);
    expect([blocks.high, blocks.evidence]).toEqual([high, 'attainable']);
  });

  it('are those of a config.json that names blocks, by either method', async () => {
    const compressed = {
      quant_method: 'compressed-tensors',
      config_groups: {
        group_0: {
          weights: { num_bits: 8, type: 'float', strategy: 'block', group_size: null, block_structure: [128, 128] },
        },
      },
    };
    const of = async (quantization: object | null) => {
      const report = await plan({ device: 'h200', model: file(quantization), codec: ['full'], batch: 4 });
      return { ...(report.plans[0] as Plan).decode.secondsPerStep!, notes: report.notes.join() };
    };
    const [blocks, alike, scaled] = [await of(BLOCKS), await of(compressed), await of(WHOLE)];
    expect(alike.high).toBe(blocks.high);
    expect(blocks.estimate).toBe(scaled.estimate);
    expect(blocks.high).toBeGreaterThan(scaled.high);
    expect(blocks.notes).toContain('kernels with a scale a block were not measured: the slow end is 1.4 times theirs');
    expect(scaled.notes).not.toContain('not measured');
  });
});

describe('GPUs whose units do not multiply 8-bit floats', () => {
  it.each(['rtx-3090', 'a100-80', 'mi210'])(
    '%s counts all operations in 16 bits, and beats no peak',
    async (device) => {
      const price = await productsOn(device);
      const peak = findDevice(device).matrixFlopsPerSecond;
      for (const rows of [1, 512, 8192]) {
        const operations = 2 * rows * 8192 * 57_344;
        for (const variant of ['f8', 'f8-blocks']) {
          const { floor, estimate, low, high } = price(variant, rows);
          expect(floor!.compute).toBeCloseTo(operations / peak, 12);
          expect(estimate).toBeGreaterThanOrEqual(floor!.compute / PEAK_MARGIN);
          expect([estimate, low, high]).toEqual(
            ['estimate', 'low', 'high'].map((end) => price('packed-8', rows)[end as 'low']),
          );
        }
        expect(price('f8', rows).estimate).toBeLessThanOrEqual(price('f16', rows).estimate);
      }
    },
  );
});

it('bitsandbytes are written in 16 bits first: the estimate is that of 16-bit weights', async () => {
  const of = async (quantization: object | null) =>
    (await plan({ device: 'h200', model: file(quantization), codec: ['full'], batch: 4 })).plans[0]!.decode;
  const [few, plain] = [await of(UNPACKED), await of(null)];
  expect(few.secondsPerStep!.estimate).toBe(plain.secondsPerStep!.estimate);
  expect(few.secondsPerStep!.high).toBeGreaterThan(plain.secondsPerStep!.high);
  expect(few.secondsPerStep!.low).toBeLessThan(plain.secondsPerStep!.low);
});
