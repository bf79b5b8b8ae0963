/** Attention that does not divide a sequence: what one unit reads alone decides, where the server's kernel is such. */
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { listed } from '../../kernels/tuned.js';
import { randomFrom } from '../../src/numbers/random.js';
import { findDevice } from '../../src/devices/find.js';
import { ask, readSources } from '../../src/plan/ask/on-disk.js';
import { prepare } from '../../src/plan/ask/prepare.js';
import { attainableSeconds, lawsOf, type AttainableFile } from '../../src/stacks/attainable.js';
import { explainAttainable } from '../../src/stacks/explain.js';
import { timesOf } from '../../scripts/fit-attainable.js';
import { endsOf, fitWalk, walksOf } from '../../scripts/fit-undivided.js';
import { walksAlone } from '../../src/stacks/serving.js';
import type { StackFile } from '../../src/stacks/stack-schema.js';

const read = <T>(name: string): T =>
  JSON.parse(readFileSync(new URL(`../../calibrations/${name}`, import.meta.url), 'utf8')) as T;
const file = read<AttainableFile>('attainable.json');
const seed = Date.now() % 2 ** 31;

const spec = findDevice('rtx-5090');
const rates = {
  memoryBytesPerSecond: spec.memoryBytesPerSecond,
  linkBytesPerSecond: 1,
  operationsPerSecond: spec.matrixFlopsPerSecond,
};
/** A GeForce multiplies tiles of 64 rows at half of its units' rate. */
const slower = (64 * spec.units) / (0.8 * spec.matrixFlopsPerSecond) / file.undividedSecondsPerByte.estimate;
const [divided, undivided] = [false, true].map((walks) => lawsOf(file, spec, spec.id, walks));
const call = (heads: number, batch: number, context: number) =>
  listed('decode-attention', { headDim: 128, heads, batch, context });
const seconds = (laws: typeof divided, ...sizes: [number, number, number]): number =>
  attainableSeconds(laws!, call(...sizes), rates).estimate;

describe('a call that divides no sequence', () => {
  it(`takes its walk at few heads, and what memory takes at many (seed ${seed})`, () => {
    const random = randomFrom(seed);
    for (let n = 0; n < 200; n++) {
      const [heads, context] = [1 + Math.floor(random() * 40), 2 ** (12 + Math.floor(random() * 6))];
      const walk = 512 * context * slower * file.undividedSecondsPerByte.estimate;
      const took = seconds(undivided, heads, 1, context);
      expect(took, `${heads} heads, ${context} tokens`).toBeGreaterThan(walk);
      expect(took, `${heads} heads, ${context} tokens`).toBeLessThan(1.3 * walk + 3e-5);
      expect(took).toBeGreaterThan(seconds(divided, heads, 1, context));
    }
    // With eight times as many heads as units all of them read.
    const many = [8 * spec.units, 1, 8192] as const;
    expect(seconds(undivided, ...many) / seconds(divided, ...many)).toBeLessThan(1.1);
  });

  it('is no faster than the tiles that a unit multiplies, which on most GPUs is no bound', () => {
    expect(slower).toBeGreaterThan(1.4);
    for (const [device, most] of [
      ['a100-80', 1],
      ['l40s', 1.1],
      ['rtx-pro-6000', 1.01],
    ] as const) {
      const { estimate, low, high } = lawsOf(file, findDevice(device), device, true).undivided!.secondsPerByte;
      const own = file.undividedSecondsPerByte;
      expect(estimate / own.estimate, device).toBeLessThanOrEqual(most);
      expect([estimate / low, high / estimate]).toEqual([
        expect.closeTo(own.estimate / own.low, 6),
        expect.closeTo(own.high / own.estimate, 6),
      ]);
    }
  });

  it('takes another walk for each unit’s next row', () => {
    const [one, two] = [spec.units, spec.units + 1].map((rows) => {
      const { parts } = explainAttainable(undivided!, call(rows, 1, 4096), rates).law;
      return parts.find(({ part }) => part === 'bytes that one unit reads alone')!.seconds;
    });
    expect(two! / one!).toBeCloseTo(2, 9);
  });

  it('is none of shared KV heads, of 8 bits, or of another class', () => {
    const shape = { headDim: 128, batch: 1, context: 65_536 };
    for (const other of [
      listed('decode-attention-grouped', { ...shape, kvHeads: 8, group: 4 }),
      listed('decode-attention-fp8', { ...shape, heads: 16 }),
      listed('product', { rows: 1, columns: 4096, inner: 4096 }),
    ])
      expect(attainableSeconds(undivided!, other, rates)).toEqual(attainableSeconds(divided!, other, rates));
  });
});

describe('a plan', () => {
  const step = async (scenario: object): Promise<{ estimate: number; notes: string }> => {
    const { plans, notes } = await ask({ codec: ['full'], batch: 1, context: 16_384, ...scenario });
    return { estimate: plans[0]!.decode.secondsPerStep!.estimate, notes: notes.join('\n') };
  };

  it('is explained by the walk that prices it, not by tables of the chip’s other card', async () => {
    const scenario = { device: 'rtx-5090', context: 16_384 };
    const pricer = prepare(scenario, await readSources(scenario)).request.pricer!;
    const sizes = { sequences: 2, kvHeads: 16, group: 1, context: 16_384, keyWidth: 128, valueWidth: 128 };
    const rest = { branchWidth: 0, branchHeads: 0, splits: 1, groupSize: 0 };
    const attend = { kernel: 'attend', variant: 'f16', shape: { ...sizes, ...rest } } as const;
    const { data, law } = pricer.explain!(attend);
    expect(data).toBeNull();
    expect(law.parts.map(({ part }) => part)).toContain('bytes that one unit reads alone');
    expect(law.seconds / pricer.price(attend).estimate).toBeCloseTo(1, 6);
  });

  it('walks where vLLM would serve with FlashAttention 2 and nobody’s tables price, and says so', async () => {
    const [usual, tuned] = [
      await step({ device: 'rtx-5090' }),
      await step({ device: 'rtx-5090', stack: 'attainable' }),
    ];
    expect(usual.estimate / tuned.estimate).toBeGreaterThan(1.5);
    expect(usual.notes).toContain('FlashAttention 2');
    expect(tuned.notes).not.toContain('FlashAttention 2');
    // Its tables have attention of shared KV heads alone.
    const [tables, laws] = [
      await step({ device: 'rtx-4090' }),
      await step({ device: 'rtx-4090', stack: 'attainable' }),
    ];
    expect(tables.estimate / laws.estimate).toBeGreaterThan(1.3);
    expect(tables.notes).toContain('FlashAttention 2');
    for (const device of ['a100-80', 'mi300x', 'h20-3e'])
      expect((await step({ device })).notes).not.toContain('FlashAttention');
    expect(walksAlone('sglang', 'rtx-5090')).toBe(false);
  });
});

describe('the fit', () => {
  it(`finds the walks that times were made from, as wide as the worst GPU that was left out (seed ${seed})`, () => {
    const random = randomFrom(seed);
    const true_ = [0, 1, 2].map(() => 3e-11 * (1 + random()));
    const fitted = fitWalk(
      true_.map((s, i) => ({ device: String(i), secondsPerByte: Array.from({ length: 9 }, () => s) })),
    );
    const logs = true_.map(Math.log);
    const sum = logs[0]! + logs[1]! + logs[2]!;
    expect(Math.log(fitted.estimate)).toBeCloseTo(sum / 3, 9);
    const worst = Math.max(...logs.map((log) => Math.abs(log - (sum - log) / 2)));
    expect(Math.log(fitted.high / fitted.estimate)).toBeCloseTo(worst, 9);
    expect(Math.log(fitted.estimate / fitted.low)).toBeCloseTo(worst, 9);
  });

  it('is what the carried tables say', () => {
    const walks = ['a100-80', 'l40s', 'rtx-pro-6000'].map((device) => {
      const stack = read<StackFile>(`stacks/${device}-vllm.json`);
      const times = stack.tables
        .filter(({ op }) => op === 'decode-attention')
        .flatMap((table) => timesOf(stack, table));
      const { floorSeconds } = lawsOf(file, findDevice(device)).pooled['decode-attention'].middle;
      return walksOf(device, times, findDevice(device).units, floorSeconds);
    });
    const { estimate, low, high } = fitWalk(walks);
    const own = file.undividedSecondsPerByte;
    expect(own.estimate / estimate).toBeCloseTo(1, 2);
    expect(own.low / low).toBeCloseTo(1, 2);
    expect(own.high / high).toBeCloseTo(1, 2);
  });

  it('has the ends of the calls that were measured, and none beyond them', () => {
    const files = readdirSync(new URL('../../calibrations/stacks/', import.meta.url))
      .filter((name) => name.endsWith('.json'))
      .map((name) => read<StackFile>(`stacks/${name}`));
    const { low, high } = endsOf(files, file);
    expect(file.undividedEnds.low / low).toBeCloseTo(1, 2);
    expect(file.undividedEnds.high / high).toBeCloseTo(1, 2);
    const ends = attainableSeconds(undivided!, call(16, 8, 2048), rates);
    expect(ends.high / ends.estimate).toBeLessThanOrEqual(file.undividedEnds.high * (1 + 1e-9));
    expect(ends.low / ends.estimate).toBeGreaterThanOrEqual(file.undividedEnds.low * (1 - 1e-9));
    const others = attainableSeconds(divided!, call(16, 8, 2048), rates);
    expect(others.high / others.estimate).toBeGreaterThan(file.undividedEnds.high);
  });
});
