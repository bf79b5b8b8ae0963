/** What kernels of one class tell about each other, on times that are made from a known law. */
import { describe, expect, it } from 'vitest';
import { fitting } from '../../src/cost/fit/fit.js';
import { calibrationPricer } from '../../src/cost/pricers.js';
import { KERNELS, workOf, type KernelCall } from '../../kernels/registry.js';
import { randomFrom } from '../../src/numbers/random.js';
import type { Calibration, Sample } from '../../src/schema/calibration.js';
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
const lawsOf = (count: number, own = factors, without = '') => {
  const samples = VARIANTS.filter((v) => v !== without).flatMap((v) =>
    Array.from({ length: count }, () => sampleOf(call(v), own.get(v)!)),
  );
  const calibration = {
    ceilings: CEILINGS,
    clock: { kind: 'timestamp' },
    overheads: { submitSeconds: 1e-5, dispatchSeconds: 4e-6 },
    kernels: [{ kernel: 'attend', samples, predictors: {} }],
  } as unknown as Calibration;
  expect([...fitting(calibration)]).toHaveLength(1);
  const pricer = calibrationPricer(calibration, { stale: new Set(), link: null, source: '' });
  return (of: KernelCall) => {
    const { estimate: seconds, high } = pricer.price(of);
    return { seconds, halfWidthLog: Math.log(high / seconds) };
  };
};

describe(`laws of classes (LLA_SIM_SEED=${SEED})`, () => {
  it('predict a variant of three points across the range, within intervals that a reader can use', () => {
    // One draw of factors decides how well three points tell them: each set of laws has its own.
    const tried = Array.from({ length: 20 }, drawFactors).flatMap((own) => {
      const laws = lawsOf(3, own);
      return Array.from({ length: 100 }, (_, i) => {
        const of = call(VARIANTS[i % VARIANTS.length]!);
        const found = laws(of);
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
    const laws = lawsOf(20, new Map(VARIANTS.map((v) => [v, 1])), 'q8');
    const errors = Array.from({ length: 200 }, () => {
      const of = call('q8');
      return Math.log(laws(of).seconds / secondsOf(of, 1));
    });
    expect(Math.abs(median(errors))).toBeLessThan(0.15);
  });
  it('are wider for a variant without points, and beyond the longest call', () => {
    const drawn = call('f16');
    // No longer than any that was measured.
    const of: KernelCall = { ...drawn, shape: { ...drawn.shape, batch: 1, context: 512 } };
    const [without, more] = [lawsOf(8, factors, 'f16'), lawsOf(8)];
    expect(without(of).halfWidthLog).toBeGreaterThan(more(of).halfWidthLog);
    const long: KernelCall = { ...of, shape: { ...of.shape, context: 2 ** 24 } };
    expect(more(long).halfWidthLog).toBeGreaterThan(more(of).halfWidthLog);
  });
});
