/** Norms, rotations and activations: by the law of kernels that two GPUs were timed with, and the gap between them. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { listed } from '../../kernels/tuned.js';
import { classSpec } from '../../kernels/op-classes.js';
import { lawSeconds } from '../../src/cost/law.js';
import { findDevice } from '../../src/devices/find.js';
import { PACKAGE_ROOT } from '../../src/io/root.js';
import { median } from '../../src/numbers/statistics.js';
import { readSources } from '../../src/plan/ask/on-disk.js';
import { prepare } from '../../src/plan/ask/prepare.js';
import { attainableSeconds, lawsOf, type AttainableFile } from '../../src/stacks/attainable.js';
import { ratesOf } from '../../src/stacks/fit/gpus.js';
import { StackPredictor, TablePredictor } from '../../src/stacks/predict.js';
import type { Pricer } from '../../src/cost/latency.js';
import type { Scenario } from '../../src/schema/settings.js';
import type { StackFile } from '../../src/stacks/stack-schema.js';
import { coldShare } from '../../src/stacks/warm.js';
import { randomOf, SEED } from '../gpu/random.js';

const random = randomOf(SEED);
const read = <T>(path: string): T => JSON.parse(readFileSync(join(PACKAGE_ROOT, 'calibrations', path), 'utf8')) as T;
const laws = read<AttainableFile>('attainable.json');
const pricerOf = async (device: string, stack: string) =>
  prepare({ device, stack, context: 4096 }, await readSources({ device, stack, context: 4096 })).request.pricer!;
const rope = (rows: number) =>
  ({ kernel: 'rope', variant: 'half-split', shape: { rows, heads: 32, headDim: 128 } }) as const;
const swiglu = (rows: number) => ({ kernel: 'swiglu', variant: 'f32', shape: { rows, width: 28672 } }) as const;

describe('small operations of a step', () => {
  it('take what those of vLLM took on RTX 4090 and RTX PRO 6000, where the L2 holds what they touch', () => {
    const { middle } = laws.pooled.small;
    for (const name of ['rtx-4090', 'rtx-pro-6000']) {
      const { tables, rates } = read<StackFile>(`stacks/${name}-vllm.json`);
      const l2Bytes = findDevice(name).l2Bytes!;
      const errors = tables.flatMap((table) => {
        if (!['norm', 'rope', 'activation'].includes(table.op)) return [];
        // All counts of tokens, not a few of them: the median of 90 moves by 0.05.
        return Array.from({ length: 1024 }, (_, at) => {
          const shape = { tokens: at + 1, width: table.axes[1]!.knots[0]! };
          const work = classSpec(table.op).work(shape);
          if (coldShare(table.op, work.bytes, l2Bytes) > 0) return [];
          const { estimate } = new TablePredictor(table, rates).predict(shape);
          return [Math.abs(Math.log(lawSeconds(middle, work, rates) / estimate))];
        }).flat();
      });
      expect(errors.length, name).toBeGreaterThan(50);
      expect(median(errors), name).toBeLessThan(0.3);
    }
  });

  it('have a gap to the next kernel, which the fast end does not have', () => {
    const h100 = findDevice('h100');
    const call = listed('norm', { tokens: 1, width: 2048 });
    const { fast, middle } = laws.pooled.small;
    const seconds = attainableSeconds(lawsOf(laws, h100), call, { ...ratesOf('h100') });
    expect(seconds.low / lawSeconds(fast, call.work, ratesOf('h100'))).toBeCloseTo(1, 9);
    expect(seconds.estimate - lawSeconds(middle, call.work, ratesOf('h100'))).toBeCloseTo(0.65e-6, 9);
    expect(seconds.estimate).toBeLessThan(4e-6);
  });

  it('wait for memory where they touch more than the L2 holds, and not where it holds all', async () => {
    const l2Bytes = 50e6;
    expect(coldShare('norm', 0.99 * l2Bytes, l2Bytes)).toBe(0);
    expect(coldShare('activation', 0.99 * l2Bytes, l2Bytes)).toBeGreaterThan(0.4);
    expect(coldShare('activation', 2 * l2Bytes, l2Bytes)).toBe(1);
    const pricer = await pricerOf('h100', 'vllm');
    const { memoryBytesPerSecond } = findDevice('h100');
    // Reads two numbers of 16 bits, and writes one.
    const perRow = (6 * 28672) / memoryBytesPerSecond;
    expect(pricer.price(swiglu(8192)).low / (8192 * perRow)).toBeGreaterThan(0.999);
    expect(pricer.price(swiglu(256)).estimate / (256 * perRow)).toBeLessThan(0.9);
  });

  it('leave out the rotation where attention of the stack does it on the way', async () => {
    const rows = random.whole(1, 64);
    expect((await pricerOf('h200', 'trtllm')).price(rope(rows)).high, `seed ${SEED}`).toBe(0);
    expect((await pricerOf('h200', 'vllm')).price(rope(rows)).low, `seed ${SEED}`).toBeGreaterThan(1e-6);
  });
});

it('attention of more sequences takes no less, where the L2 held those of the fewer', () => {
  const tables = new StackPredictor(read<StackFile>('stacks/rtx-pro-6000-trtllm.json'));
  const shape = { headDim: 128, kvHeads: 8, group: 4, context: random.whole(2048, 8192) };
  const seconds = Array.from({ length: 96 }, (_, i) => {
    return tables.predict('decode-attention-grouped-fp8', { ...shape, batch: i + 1 })!.estimate;
  });
  for (const [i, more] of seconds.slice(1).entries())
    expect(more / seconds[i]!, `${i + 2} of ${shape.context}, seed ${SEED}`).toBeGreaterThan(0.8);
});

describe('what TRT-LLM’s kernels do on the way, of Llama-70B in 8-bit floats', () => {
  const model = 'ledger/models/llama-3.1-70b.json';
  const pricer = async (more: Partial<Scenario>): Promise<Pricer> => {
    const asked = { device: 'b200', stack: 'trtllm', context: 4096, model, weightType: 'fp8', ...more } as const;
    return prepare(asked, await readSources(asked)).request.pricer!;
  };
  const [hidden, queries] = [8192, 10240];
  const product = (n: number, m: number) =>
    ({ kernel: 'matmul', variant: 'f8', shape: { groups: 1, m, k: hidden, n } }) as const;
  const norm = (rows: number) => ({ kernel: 'rmsnorm', variant: 'norm', shape: { rows, width: hidden } }) as const;
  const tables = new StackPredictor(read<StackFile>('stacks/b200-trtllm.json'));
  const quantises = (rows: number): number => tables.predict('quantise', { tokens: rows, width: hidden })!.estimate;
  const whole = (columns: number, rows: number): number =>
    tables.predict('product-fp8', { rows, columns, inner: hidden })!.estimate;

  it('attention and activation quantise the rows of products to the stream', async () => {
    const rows = random.whole(1, 64);
    const prices = await pricer({});
    expect(prices.price(product(queries, rows)).estimate, `seed ${SEED}`).toBeCloseTo(whole(queries, rows), 12);
    const { estimate, evidence } = prices.price(product(hidden, rows));
    expect(estimate, `seed ${SEED}`).toBeCloseTo(whole(hidden, rows) - quantises(rows), 12);
    expect(evidence).not.toBe('measured');
    expect(prices.explain!(product(hidden, rows)).rule!.what).toMatch(/in 8 bits from the kernel before/);
    expect(prices.price(norm(rows)).estimate).toBeGreaterThan(1e-6);
  });

  it('all-reduces do the norm and the quantisation behind them', async () => {
    const rows = random.whole(1, 64);
    const prices = await pricer({ gpus: 4 });
    expect(prices.price(norm(rows)).high).toBe(0);
    expect(prices.price(product(queries, rows)).estimate, `seed ${SEED}`).toBeCloseTo(
      whole(queries, rows) - quantises(rows),
      12,
    );
  });

  it('not of narrow models, of other families, nor in other stacks', async () => {
    for (const more of [
      { gpus: 2, model: 'ledger/models/llama-3.1-8b.json' },
      { gpus: 2, model: 'ledger/models/qwen3-32b.json' },
      { gpus: 4, stack: 'vllm' },
    ])
      expect((await pricer(more)).price(norm(8)).estimate, JSON.stringify(more)).toBeGreaterThan(1e-6);
    const prices = await pricer({ stack: 'vllm', gpus: 4 });
    const other = new StackPredictor(read<StackFile>('stacks/b200-vllm.json'));
    const alone = other.predict('product-fp8', { rows: 8, columns: hidden, inner: hidden })!.estimate;
    expect(prices.price(product(hidden, 8)).estimate).toBeCloseTo(alone, 12);
  });
});
