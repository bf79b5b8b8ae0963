/** What each assumed number of the statistics changes: a figure with it, and with another in its place. */
import { afterEach, expect, it, vi } from 'vitest';
import { workOf } from '../../kernels/registry.js';
import type { Shape } from '../../kernels/spec.js';
import { CONSTANTS } from '../../src/cost/constants.js';
import type { Interval, Price } from '../../src/cost/evidence.js';
import type { Predictor, Sample } from '../../src/schema/calibration.js';
import { expectGolden } from '../golden/golden.js';

const PATH = '../../src/cost/constants.js';
type Name = keyof typeof CONSTANTS;
interface Case {
  readonly instead: number;
  /** How the figure with the other number is, beside that with the constant. */
  readonly becomes: 'less' | 'more';
  /** Loads what it asks, so that it holds the number of the moment. */
  readonly figure: () => Promise<number>;
}

afterEach(() => {
  vi.doUnmock(PATH);
  vi.resetModules();
});

const SHAPES = [1, 4, 16, 64, 256, 1024, 4096].flatMap((rows) => [512, 2048, 8192].map((width) => ({ rows, width })));
/** A law's times, each of them off by up to `scatter`, and twice measured. */
const samplesOf = (shapes: readonly Shape[], scatter = 0, factors: Readonly<Record<number, number>> = {}): Sample[] =>
  shapes.map((shape, i) => {
    const { readBytes, writeBytes, flops } = workOf({ kernel: 'rmsnorm', variant: 'norm', shape });
    const off = 1 + scatter * (((i * 7) % 11) / 5 - 1);
    const seconds = (4e-6 + (readBytes + writeBytes) / 6e10) * off * (factors[i] ?? 1);
    const visits = Array<number>(8).fill(seconds);
    return { variant: 'norm', shape, tuning: {}, readBytes, writeBytes, flops, seconds: visits, relativeError: 0 };
  });
const fitted =
  (of: keyof Predictor, samples = samplesOf(SHAPES, 0.1)) =>
  async (): Promise<number> => {
    const { fitPredictor } = await import('../../src/cost/fit/fit.js');
    return [fitPredictor('rmsnorm', 'norm', samples)[of]].flat()[0] as number;
  };
const wild = (samples: Sample[]) => async (): Promise<number> => {
  const { outliers } = await import('../../src/cost/fit/fit.js');
  return outliers('rmsnorm', 'norm', samples).length;
};

const RATES = { memoryBytesPerSecond: 4.8e12, linkBytesPerSecond: 4.5e11, operationsPerSecond: 9.89e14 };
/** A table of grouped attention over five configurations, up to so many cached tokens of all sequences. */
const table = async (mostTokens = Infinity) => {
  const { classSpec } = await import('../../kernels/op-classes.js');
  const { fitTable } = await import('../../src/stacks/fit/fit-table.js');
  const rows = [1, 2, 4, 8, 16].flatMap((kvHeads) =>
    [1, 4, 16, 64].flatMap((batch) =>
      [128, 512, 2048, 8192, 32768]
        .filter((context) => batch * context <= mostTokens)
        .map((context) => {
          const shape = { kvHeads, group: 32 / kvHeads, batch, context };
          const { bytes } = classSpec('decode-attention-grouped').work({ ...shape, headDim: 128 });
          const wave = 0.2 * Math.sin(Math.log2(batch) + Math.log2(context));
          return { shape, seconds: (5e-6 + bytes / 3e12) * Math.exp(wave) };
        }),
    ),
  );
  return fitTable('decode-attention-grouped', { headDim: 128 }, rows, RATES, 900);
};

const price = (estimate: number, evidence: Price['evidence']): Price => ({
  ...{ estimate, low: 0.9 * estimate, high: 1.1 * estimate, evidence },
  ...{ by: 'lla-sim', octavesOutside: 0 },
});
/** A time of a call that bytes and operations keep busy for most of it, on a card with half of both rates. */
const moved = (of: (price: Interval) => number) => async (): Promise<number> => {
  const { onOtherCard } = await import('../../src/stacks/same-chip.js');
  const work = { bytes: 1e-3 * RATES.memoryBytesPerSecond, operations: 1e-3 * RATES.operationsPerSecond };
  const found = { estimate: 3e-3, low: 2.7e-3, high: 3.3e-3, evidence: 'measured', octavesOutside: 0 } as const;
  return of(onOtherCard(found, work, RATES, { memory: 2, compute: 2, tile: 1 }));
};
const DATASHEET = { bytesPerSecond: 1e12, f32FlopsPerSecond: 1e13, matrixFlopsPerSecond: null };

const CASES: Record<Name, Case> = {
  level: {
    instead: 0.5,
    becomes: 'less',
    figure: async () =>
      (await import('../../src/cost/conformal.js')).conformalQuantile(Array.from({ length: 20 }, (_, i) => i)),
  },
  normal90: { instead: 0, becomes: 'less', figure: fitted('quantile', samplesOf(SHAPES)) },
  // One variant has the octaves of one, which is too few: an octave costs a factor of two.
  fewestForQuantile: { instead: 1, becomes: 'less', figure: fitted('kappaPerOctave') },
  perOctaveUntested: { instead: 0.1, becomes: 'less', figure: fitted('kappaPerOctave') },
  perOctaveLeast: {
    instead: 0,
    becomes: 'less',
    figure: async () => (await import('../../src/cost/conformal.js')).kappaOf([0]),
  },
  perOctaveInside: {
    instead: 0,
    becomes: 'less',
    figure: async () => {
      const { TablePredictor } = await import('../../src/stacks/predict.js');
      const predictor = new TablePredictor({ ...(await table(2 ** 17)), source: 0 }, RATES);
      const shape = { kvHeads: 1, group: 32, headDim: 128, batch: 64, context: 32768 };
      const { high, estimate } = predictor.predict(shape);
      return Math.log(high / estimate);
    },
  },
  leastDeviation: { instead: 0, becomes: 'less', figure: fitted('measuredVariance', samplesOf(SHAPES, 0.5)) },
  // Of eight repetitions no half has so many.
  fewestRepetitions: { instead: 5, becomes: 'more', figure: fitted('measuredVariance', samplesOf(SHAPES, 0.5)) },
  variantPrior: { instead: 3, becomes: 'more', figure: fitted('effectVariances') },
  termPrior: {
    instead: 3,
    becomes: 'more',
    figure: async () => {
      const { fitPredictor } = await import('../../src/cost/fit/fit.js');
      return fitPredictor('rmsnorm', 'norm', samplesOf(SHAPES, 0.1)).effectVariances[1];
    },
  },
  mostOfTerm: {
    instead: 1e6,
    becomes: 'more',
    figure: async () => {
      const { Calls } = await import('../../src/cost/predictor.js');
      const calls = new Calls('rmsnorm', 'norm', {
        floorSeconds: 1e-9,
        bytesPerSecond: 1e12,
        operationsPerSecond: 1e12,
      });
      const shares = calls.sharesAt({ rows: 1, width: 512 });
      const { features } = calls.placeAt(
        { rows: 1, width: 512 },
        shares.map((share) => share / 100),
      );
      return Math.max(...Array.from(features));
    },
  },
  signalPrior: { instead: 3, becomes: 'more', figure: fitted('signalVariance') },
  noisePrior: { instead: 3, becomes: 'more', figure: fitted('noiseVariance') },
  lengthPrior: { instead: 30, becomes: 'more', figure: fitted('lengthScale') },
  // Without a prior three times that are their law have no noise at all.
  priorSpread: { instead: 100, becomes: 'less', figure: fitted('noiseVariance', samplesOf(SHAPES.slice(0, 3))) },
  unmeasured: {
    instead: 0.1,
    becomes: 'less',
    figure: async () => {
      const { mostTelling } = await import('../../src/bench/calibrate/choose.js');
      const candidates = SHAPES.map((shape) => ({ shape, share: 1 }));
      const reach = { floorSeconds: 1e-5, bytesPerSecond: 1e10, operationsPerSecond: 4e10 };
      return mostTelling({ kernel: 'rmsnorm', variant: 'norm' }, [], candidates, reach).lowered;
    },
  },
  outlierDeviations: { instead: 1e6, becomes: 'less', figure: wild(samplesOf(SHAPES, 0.02, { 9: 50 })) },
  outlierLeast: { instead: 0, becomes: 'more', figure: wild(samplesOf(SHAPES, 0.001, { 9: 1.2 })) },
  outlierShare: { instead: 0.01, becomes: 'less', figure: wild(samplesOf(SHAPES, 0.02, { 4: 40, 15: 60 })) },
  peakMargin: {
    instead: 9,
    becomes: 'more',
    figure: async () => {
      const { atPace } = await import('../../src/cost/law.js');
      const law = { floorSeconds: 1e-6, bandwidthShare: 1, peakShare: 0.9 };
      return atPace(law, { floor: 1, rows: 1, peak: 2 }).peakShare;
    },
  },
  fewestConfigurations: { instead: 9, becomes: 'more', figure: async () => (await table()).offConfiguration },
  fewestOfTime: { instead: 20, becomes: 'more', figure: async () => (await table()).widths.length },
  neighbours: {
    instead: 1,
    becomes: 'more',
    figure: async () => {
      const { Field } = await import('../../src/stacks/fit/kriging.js');
      const points = Array.from({ length: 40 }, (_, i) => [i / 2]);
      const values = Float64Array.from(points, ([x]) => Math.sin(x!));
      return Math.abs(new Field(points, values, { lengths: [2], nugget: 1e-4 }).valueAt([7.25]) - Math.sin(7.25));
    },
  },
  otherMachine: {
    instead: 1,
    becomes: 'less',
    figure: async () => {
      const { datasheetPricer, elsewhere } = await import('../../src/cost/pricers.js');
      return elsewhere(datasheetPricer(DATASHEET, null)).stepOverhead.high;
    },
  },
  scores: {
    instead: 1,
    becomes: 'less',
    figure: async () => {
      const { measuredPricer } = await import('../../src/cost/pricers.js');
      const predictors = new Map([['attend/f16', () => price(1, 'measured')]]);
      const more = { rates: DATASHEET, stepOverhead: price(1, 'measured'), link: null, source: 'a test' };
      const shape = { sequences: 1, kvHeads: 1, group: 1, context: 1, keyWidth: 1, valueWidth: 1 };
      const rest = { branchWidth: 0, branchHeads: 0, splits: 1, groupSize: 0 };
      const call = { kernel: 'attend', variant: 'f16+scores', shape: { ...shape, ...rest } } as const;
      return measuredPricer({ predictors, ...more }).price(call).high;
    },
  },
  negligible: {
    instead: 0,
    becomes: 'more',
    figure: async () => {
      const { priceCalls } = await import('../../src/cost/latency.js');
      const { EVIDENCE } = await import('../../src/cost/evidence.js');
      const pricer = {
        price: ({ kernel }: { kernel: string }) =>
          kernel === 'matmul' ? price(0.95, 'measured') : price(0.05, 'extrapolated'),
        stepOverhead: price(0, 'measured'),
        collective: () => null,
        source: 'a test',
      };
      const { evidence } = priceCalls(pricer, 1, (add) => {
        for (const kernel of ['matmul', 'rmsnorm'] as const) add({ kernel, variant: 'x', shape: {} }, 1);
        return { collectives: [], submissions: 1 };
      });
      return EVIDENCE.indexOf(evidence);
    },
  },
  mostLaunchGap: {
    instead: 0,
    becomes: 'less',
    figure: async () => {
      const { lawsOf } = await import('../../src/stacks/attainable.js');
      const { findDevice } = await import('../../src/devices/find.js');
      const law = { floorSeconds: 1e-6, bandwidthShare: 1, peakShare: 1 };
      const small = { fast: law, middle: law, slow: law };
      const file = { pooled: { small }, devices: {}, from: [] } as unknown as Parameters<typeof lawsOf>[0];
      return lawsOf(file, findDevice('h100')).pooled.small.slow.floorSeconds;
    },
  },
  reachedMemory: { instead: 1, becomes: 'less', figure: moved(({ estimate }) => estimate) },
  reachedCompute: { instead: 1, becomes: 'less', figure: moved(({ estimate }) => estimate) },
  otherCard: { instead: 0, becomes: 'less', figure: moved(({ high, estimate }) => high / estimate) },
  otherCardMove: { instead: 0, becomes: 'less', figure: moved(({ high, estimate }) => high / estimate) },
  unequalLoss: {
    instead: 0,
    becomes: 'less',
    figure: async () => (await import('../../src/cost/unequal.js')).unequalLoss(4, 2),
  },
  tileShare: {
    instead: 1,
    becomes: 'more',
    figure: async () => (await import('../../src/cost/beside-prompts.js')).tileRate(1, false),
  },
  tileShareHalved: {
    instead: 1,
    becomes: 'more',
    figure: async () => (await import('../../src/cost/beside-prompts.js')).tileRate(1, true),
  },
  unequalRounds: {
    instead: 1,
    becomes: 'more',
    figure: async () => (await import('../../src/cost/unequal.js')).unequalLoss(1.5, 2),
  },
};

it.each(Object.entries(CASES) as [Name, Case][])('%s changes what it says it does', async (name, one) => {
  const { instead, becomes, figure } = one;
  vi.resetModules();
  const as = await figure();
  vi.doMock(PATH, () => ({ CONSTANTS: { ...CONSTANTS, [name]: { ...CONSTANTS[name], value: instead } } }));
  vi.resetModules();
  const other = await figure();
  expect(Number.isFinite(as)).toBe(true);
  if (becomes === 'less') expect(other).toBeLessThan(as);
  else expect(other).toBeGreaterThan(as);
});

// Against slips: each is kept twice.
it('has the values of golden/constants.txt', () => {
  expectGolden(
    'constants.txt',
    Object.entries(CONSTANTS).map(([name, { value, unit }]) => `${name}: ${value} (${unit})`),
  );
});
