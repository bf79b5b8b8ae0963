/** What kernels of one class tell about each other, on times that are made from a known law. */
import { describe, expect, it } from 'vitest';
import { classLaws, narrowed } from '../../src/cost/class-laws.js';
import { KERNELS, workOf, type KernelCall } from '../../kernels/registry.js';
import { randomFrom } from '../../src/numbers/random.js';
import type { Sample } from '../../src/schema/calibration.js';
import { median } from '../../src/numbers/statistics.js';
import { SEED } from '../gpu/random.js';

const CEILINGS = { readBytesPerSecond: 1e11, copyBytesPerSecond: 1e11, f32FlopsPerSecond: 1e12 };
const random = randomFrom(SEED);
const normal = (): number => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
const whole = (least: number, most: number): number => Math.round(least * (most / least) ** random());

/** Attention over cached rows in several storages: each has a factor of its own. */
const VARIANTS = ['f16', 'q8', 'q4', 'q3', 'q2'] as const;
const drawFactors = () => new Map(VARIANTS.map((v) => [v, Math.exp(0.5 * normal())]));
const factors = drawFactors();
const call = (variant: (typeof VARIANTS)[number]): KernelCall => {
  const dims = Object.fromEntries(KERNELS.attend.dims.map((dim) => [dim, 1]));
  const shape = {
    ...dims,
    batch: whole(1, 16),
    heads: 16,
    kvHeads: 16,
    headDim: 128,
    valueDim: 128,
    context: whole(512, 65536),
    groupSize: variant === 'f16' ? 0 : 64,
  };
  return { kernel: 'attend', variant, shape };
};
const secondsOf = (of: KernelCall, factor: number): number => {
  const { readBytes, writeBytes, flops } = workOf(of);
  return factor * (2e-5 + Math.max((readBytes + writeBytes) / 6e10, flops / 5e11)) * Math.exp(0.1 * normal());
};
const sampleOf = (of: KernelCall, factor: number): Sample => {
  const { readBytes, writeBytes, flops } = workOf(of);
  const seconds = secondsOf(of, factor);
  return {
    variant: of.variant,
    shape: of.shape,
    tuning: {},
    readBytes,
    writeBytes,
    flops,
    seconds: [seconds],
    relativeError: 0,
  };
};
const lawsOf = (counts: number, own = factors) =>
  classLaws(
    {
      ceilings: CEILINGS as never,
      kernels: [
        {
          kernel: 'attend',
          samples: VARIANTS.flatMap((v) => Array.from({ length: counts }, () => sampleOf(call(v), own.get(v)!))),
        },
      ],
    },
    new Set(),
  );

describe(`laws of classes (LLA_SIM_SEED=${SEED})`, () => {
  it('predict a variant of three points across the range, within intervals that a reader can use', () => {
    // One draw of factors decides how well three points tell them: each set of laws has its own.
    const tried = Array.from({ length: 20 }, drawFactors).flatMap((own) => {
      const laws = lawsOf(3, own);
      return Array.from({ length: 100 }, (_, i) => {
        const of = call(VARIANTS[i % VARIANTS.length]!);
        const found = laws(of)!;
        return {
          error: Math.abs(Math.log(secondsOf(of, own.get(of.variant as 'f16')!) / found.seconds)),
          ...found,
        };
      });
    });
    expect(tried.filter((t) => t.error <= t.halfWidthLog).length / tried.length).toBeGreaterThan(0.85);
    expect(median(tried.map((t) => t.halfWidthLog))).toBeLessThan(Math.log(3));
    // The variants' own factors scatter by half a unit of the logarithm, times by a tenth.
    expect(median(tried.map((t) => t.error))).toBeLessThan(0.2);
  });
  it('take a variant without points for one like the others', () => {
    const laws = lawsOf(60, new Map(VARIANTS.map((v) => [v, 1])));
    const errors = Array.from({ length: 200 }, () => {
      const of = { ...call('f16'), variant: 'f16+scores' };
      return Math.log(laws(of)!.seconds / secondsOf(of, 1));
    });
    expect(Math.abs(median(errors))).toBeLessThan(0.1);
  });
  it('are wider for a variant without points, and beyond the longest call', () => {
    const drawn = call('f16');
    // No longer than any that was measured.
    const of: KernelCall = { ...drawn, shape: { ...drawn.shape, batch: 1, context: 512 } };
    const [few, more] = [lawsOf(3), lawsOf(8)];
    expect(few({ ...of, variant: 'f16+scores' })!.halfWidthLog).toBeGreaterThan(few(of)!.halfWidthLog);
    const long: KernelCall = { ...of, shape: { ...of.shape, context: 2 ** 24 } };
    expect(more(long)!.halfWidthLog).toBeGreaterThan(more(of)!.halfWidthLog);
  });
  it('are not made of fewer than six points, nor of kernels that have changed', () => {
    expect(lawsOf(1)(call('f16'))).toBeNull();
    const kernels = [{ kernel: 'attend', samples: Array.from({ length: 20 }, () => sampleOf(call('f16'), 1)) }];
    expect(classLaws({ ceilings: CEILINGS as never, kernels }, new Set(['attend']))(call('f16'))).toBeNull();
  });
  it('narrow what is less sure than they are, and nothing else', () => {
    const own = { seconds: 1, halfWidthLog: 2 };
    const law = { seconds: 2, halfWidthLog: 0.5 };
    expect(narrowed(own, law)).toMatchObject({ halfWidthLog: 0.5 });
    expect(narrowed(own, law).seconds).toBeGreaterThan(1.8);
    expect(narrowed(own, law).seconds).toBeLessThan(2);
    const sure = { ...own, halfWidthLog: 0.4 };
    expect(narrowed(sure, law)).toBe(sure);
    expect(narrowed(own, null)).toBe(own);
  });
});
