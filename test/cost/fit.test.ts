import { readFileSync } from 'node:fs';
import { beforeAll, describe, expect, it } from 'vitest';
import {
  candidatesOf,
  normalFrom,
  randomFrom,
  runExperiment,
  sampleOf,
  SYNTHETIC_KERNELS,
} from '../../scripts/coverage-experiment.js';
import { KAPPA_UNTESTED } from '../../src/cost/conformal.js';
import { digestSamples, fitPredictor, outliers } from '../../src/cost/fit/fit.js';
import { makePredictor, measuredPoints, type Prediction } from '../../src/cost/predictor.js';
import { predictorSchema, type Predictor, type Sample } from '../../src/schema/calibration.js';
import { slowdownOf, typicalSeconds } from '../../src/schema/drift.js';
import type { Shape } from '../../kernels/spec.js';
import { everyNth } from '../gpu/sample.js';

const [attend, waves, matmul] = SYNTHETIC_KERNELS as [
  (typeof SYNTHETIC_KERNELS)[0],
  (typeof SYNTHETIC_KERNELS)[0],
  (typeof SYNTHETIC_KERNELS)[0],
];

const normShape = (rows: number, width: number) => ({ rows, width });
const normTime = ({ rows, width }: { rows: number; width: number }) => 3e-6 + (8 * rows * width) / 3e12;
const normSamples = (shapes: { rows: number; width: number }[], time = normTime) =>
  shapes.map((shape) => sampleOf('rmsnorm', 'norm', shape, [time(shape)]));
const normGrid = (rows: number[], widths: number[]) => rows.flatMap((r) => widths.map((w) => normShape(r, w)));

const expectFinite = ({ seconds, halfWidthLog, octavesOutside }: Prediction) => {
  for (const value of [seconds, halfWidthLog, octavesOutside]) expect(Number.isFinite(value)).toBe(true);
  expect(seconds).toBeGreaterThan(0);
  expect(halfWidthLog).toBeGreaterThan(0);
};

describe('the law', () => {
  it('recovers the numbers of a kernel that is its law', () => {
    const p = fitPredictor('rmsnorm', 'norm', normSamples(normGrid([1, 16, 256, 4096], [512, 2048, 8192])));
    expect(p.floorSeconds / 3e-6).toBeCloseTo(1, 1);
    expect(p.bytesPerSecond / 3e12).toBeCloseTo(1, 1);
  });

  it('takes a drift of the machine off: a sample measured on a slow machine counts as on a fast one', () => {
    const samples = normSamples(normGrid([1, 16, 256, 4096], [512, 2048, 8192]));
    const drifted = samples.map((s, i) =>
      i % 3 === 0 ? { ...s, seconds: s.seconds.map((t) => slowdownOf(1.4) * t), drift: s.seconds.map(() => 1.4) } : s,
    );
    const seconds = (list: Sample[]) => measuredPoints('rmsnorm', 'norm', list).map((p) => p.seconds);
    seconds(drifted).forEach((each, i) => expect(each / seconds(samples)[i]!).toBeCloseTo(1, 12));
    expect(digestSamples('rmsnorm', 'norm', drifted)).not.toBe(
      digestSamples(
        'rmsnorm',
        'norm',
        drifted.map(({ drift: _, ...s }) => s),
      ),
    );
  });

  it('is not moved by a lone outlier, slow or fast', () => {
    const samples = normSamples(normGrid([1, 16, 256, 4096], [512, 2048, 8192]));
    for (const [index, factor] of [
      [5, 150],
      [1, 0.2],
    ] as const) {
      const list = samples.map((s, i) => (i === index ? { ...s, seconds: [s.seconds[0]! * factor] } : s));
      const predict = makePredictor('rmsnorm', 'norm', list, fitPredictor('rmsnorm', 'norm', list));
      // Away from the outlier; a fit that followed it would be off by its factor's root.
      for (const shape of [normShape(4096, 512), normShape(4096, 8192), normShape(300, 8192)])
        expect(Math.abs(Math.log(predict(shape).seconds / normTime(shape))), `${factor}×`).toBeLessThan(0.3);
    }
  });
});

describe('fitPredictor', () => {
  it('predicts hidden points of kernels of known truth, and says how well', () => {
    const clean = runExperiment(attend, { noise: 0, count: 50, pool: 500, seed: 1 });
    expect(median(clean.errors)).toBeLessThan(0.045);
    expect(clean.looMedianError).toBeLessThan(0.09);
    const noisy = runExperiment(matmul, { noise: 0.1, count: 50, pool: 500, seed: 1 });
    expect(median(noisy.errors)).toBeLessThan(0.08);
  });

  it.each(everyNth(SYNTHETIC_KERNELS, 2))('covers hidden runs in about 90 % of the cases: $title', (synthetic) => {
    for (const noise of [0, 0.05, 0.1]) {
      const runs = [1, 2, 3, 4].map((seed) => runExperiment(synthetic, { noise, count: 32, pool: 200, seed }));
      const share = runs.reduce((sum, run) => sum + run.covered, 0) / runs.reduce((sum, run) => sum + run.hidden, 0);
      expect(share, `noise ${noise}`).toBeGreaterThan(0.82);
      expect(median(runs.flatMap((run) => run.halfWidths))).toBeLessThan(0.85);
    }
  });

  it('is deterministic and passes its schema', () => {
    const samples = candidatesOf(waves, 30, randomFrom(1)).map((shape) =>
      sampleOf(waves.kernel, waves.variant, shape, [waves.seconds(shape)]),
    );
    const predictor = fitPredictor(waves.kernel, waves.variant, samples);
    expect(fitPredictor(waves.kernel, waves.variant, samples)).toEqual(predictor);
    expect(predictorSchema.parse(predictor)).toEqual(predictor);
    // What is stored survives JSON and predicts the same.
    const stored = JSON.parse(JSON.stringify(predictor)) as Predictor;
    const shape = samples[3]!.shape;
    expect(makePredictor(waves.kernel, waves.variant, samples, stored)(shape)).toEqual(
      makePredictor(waves.kernel, waves.variant, samples, predictor)(shape),
    );
  });

  it('ignores other variants and pools repetitions of one shape', () => {
    const samples = normSamples(normGrid([1, 64, 512, 4096], [512, 1024, 4096]));
    const other = { ...samples[0]!, variant: 'add', seconds: [1] };
    expect(fitPredictor('rmsnorm', 'norm', [other, ...samples])).toEqual(fitPredictor('rmsnorm', 'norm', samples));
    const twice = measuredPoints('rmsnorm', 'norm', [...samples, { ...samples[0]!, seconds: [9, 9] }]);
    expect(twice).toHaveLength(samples.length);
    expect(twice[0]).toMatchObject({
      seconds: typicalSeconds([...samples[0]!.seconds, 9, 9]),
      sampleIndices: [0, samples.length],
    });
    expect(() => fitPredictor('rmsnorm', 'add', samples)).toThrow('none of the 12 samples');
  });

  it('is honest about few or degenerate samples', () => {
    const shapes = [normShape(1, 512), normShape(64, 512), normShape(64, 2048), normShape(1024, 2048)];
    const cases: Record<string, Sample[]> = {
      'one sample': normSamples(shapes.slice(0, 1)),
      'two samples': normSamples(shapes.slice(0, 2)),
      'three samples': normSamples(shapes.slice(0, 3)),
      'four samples': normSamples(shapes),
      'one shape': normSamples([shapes[0]!, shapes[0]!, shapes[0]!]),
      'identical times': normSamples(normGrid([1, 16, 256], [512, 1024, 2048, 4096]), () => 5e-6),
      'a zero': normSamples([normShape(0, 512), normShape(1, 512), normShape(8, 512)]),
    };
    for (const [title, samples] of Object.entries(cases)) {
      const predictor = fitPredictor('rmsnorm', 'norm', samples);
      expect(predictorSchema.safeParse(predictor).success, title).toBe(true);
      const predict = makePredictor('rmsnorm', 'norm', samples, predictor);
      for (const shape of [...shapes, normShape(0, 0), normShape(1e6, 1e6)]) expectFinite(predict(shape));
    }
    expect(fitPredictor('rmsnorm', 'norm', cases['one sample']!)).toMatchObject({
      kappaPerOctave: KAPPA_UNTESTED,
    });
    expect(
      makePredictor(
        'rmsnorm',
        'norm',
        cases['identical times']!,
        fitPredictor('rmsnorm', 'norm', cases['identical times']!),
      )(normShape(64, 1024)).seconds,
    ).toBeCloseTo(5e-6, 9);
  });
});

describe('predictor', () => {
  const samples = normSamples(normGrid([1, 4, 16, 64, 256, 1024], [512, 2048, 8192]));
  let predict: (shape: Shape) => Prediction;
  beforeAll(() => {
    predict = makePredictor('rmsnorm', 'norm', samples, fitPredictor('rmsnorm', 'norm', samples));
  });

  it('tells measured, interpolated and extrapolated shapes apart', () => {
    expect(predict(normShape(16, 2048))).toMatchObject({ evidence: 'measured', octavesOutside: 0 });
    expect(predict(normShape(17, 2048))).toMatchObject({ evidence: 'interpolated', octavesOutside: 0 });
    expect(predict(normShape(4096, 2048)).evidence).toBe('extrapolated');
    expect(predict(normShape(4096, 2048)).octavesOutside).toBeCloseTo(2, 2);
    expect(predict(normShape(4096, 16384)).octavesOutside).toBeCloseTo(3, 2);
  });

  it('counts a field that never varied as an octave and its distance', () => {
    const narrow = samples.filter(({ shape }) => shape['width'] === 2048);
    const ofNarrow = makePredictor('rmsnorm', 'norm', narrow, fitPredictor('rmsnorm', 'norm', narrow));
    expect(ofNarrow(normShape(16, 2048)).octavesOutside).toBe(0);
    expect(ofNarrow(normShape(16, 8192))).toMatchObject({ evidence: 'extrapolated' });
    expect(ofNarrow(normShape(16, 8192)).octavesOutside).toBeCloseTo(3, 2);
    expect(ofNarrow(normShape(16, 2049)).octavesOutside).toBeGreaterThanOrEqual(1);
  });

  it('widens beyond the longest call, octave by octave', () => {
    const widths = [1024, 2048, 4096, 16384, 65536].map((rows) => predict(normShape(rows, 8192)).halfWidthLog);
    widths.slice(1).forEach((width, i) => expect(width).toBeGreaterThan(widths[i]!));
    expect(predict(normShape(65536, 8192)).halfWidthLog - predict(normShape(1024, 8192)).halfWidthLog).toBeGreaterThan(
      6 * 0.02 - 1e-9,
    );
  });

  it('never returns NaN or an infinity', () => {
    const matmulSamples = candidatesOf(matmul, 20, randomFrom(2)).map((shape) =>
      sampleOf('matmul', 'f16', shape, [matmul.seconds(shape)]),
    );
    const attendSamples = candidatesOf(attend, 20, randomFrom(2)).map((shape) =>
      sampleOf('attend', 'f16', shape, [attend.seconds(shape)]),
    );
    const random = randomFrom(9);
    for (const [kernel, list] of [
      ['matmul', matmulSamples],
      ['attend', attendSamples],
    ] as const) {
      const variant = 'f16';
      const anywhere = makePredictor(kernel, variant, list, fitPredictor(kernel, variant, list));
      const extremes = [0, 1e-300, 0.5, 1, 1e9, 1e100, Number.MAX_VALUE];
      for (let trial = 0; trial < 500; trial++) {
        expectFinite(
          anywhere(
            Object.fromEntries(
              Object.keys(list[0]!.shape).map((name) => [name, extremes[Math.floor(random() * extremes.length)]!]),
            ),
          ),
        );
      }
    }
  });

  it('needs nothing but the kernels: it also runs in a browser', () => {
    const source = readFileSync(new URL('../../src/cost/predictor.ts', import.meta.url), 'utf8');
    const imports = source.split('\n').filter((line) => line.startsWith('import ') && !line.startsWith('import type'));
    expect(imports).toEqual([
      "import { CONSTANTS } from './constants.js';",
      "import { KERNELS, workOf, type KernelCall, type KernelName } from '../../kernels/registry.js';",
      "import { correctedSeconds, driftExponentOf, typicalSeconds } from '../schema/drift.js';",
      "import { lawSeconds, type Law } from './law.js';",
      "import { Process, type Place } from './process.js';",
    ]);
  });

  it('says what is missing', () => {
    expect(() => predict({ rows: 1 })).toThrow('width');
  });
});

describe('digestSamples', () => {
  const samples = normSamples(normGrid([1, 4], [512, 2048]));
  const digest = digestSamples('rmsnorm', 'norm', samples);

  it('depends on neither the order of samples nor that of fields', () => {
    const shuffled = [...samples]
      .reverse()
      .map((sample) => ({ ...sample, shape: { width: sample.shape['width']!, rows: sample.shape['rows']! } }));
    expect(digestSamples('rmsnorm', 'norm', shuffled)).toBe(digest);
    expect(digestSamples('rmsnorm', 'norm', [...samples, { ...samples[0]!, variant: 'add' }])).toBe(digest);
    // Computed apart from this program (Python's hashlib): stored digests must stay valid.
    expect(digest).toBe('15822896fde408abe2ec29c57c8425e6086eb79ad01cfd150791f122bf035bdb');
  });

  it('depends on every time, shape and name', () => {
    const changed = [{ ...samples[0]!, seconds: [...samples[0]!.seconds, 1] }, ...samples.slice(1)];
    const moved = [{ ...samples[0]!, shape: normShape(2, 512) }, ...samples.slice(1)];
    const renamed = samples.map((sample) => ({ ...sample, variant: 'add' }));
    const digests = [
      digest,
      digestSamples('rmsnorm', 'norm', changed),
      digestSamples('rmsnorm', 'norm', moved),
      digestSamples('rmsnorm', 'add', renamed),
      digestSamples('rmsnorm', 'norm', samples.slice(1)),
    ];
    expect(new Set(digests).size).toBe(digests.length);
  });
});

describe('outliers', () => {
  it('finds wild times and hardly anything else', () => {
    for (const seed of [1, 2, 3]) {
      const random = randomFrom(seed);
      const normal = normalFrom(random);
      const samples = candidatesOf(attend, 50, random).map((shape) =>
        sampleOf('attend', 'f16', shape, [attend.seconds(shape) * Math.exp(0.05 * normal())]),
      );
      // One that is none costs a repetition.
      expect(outliers('attend', 'f16', samples).length).toBeLessThanOrEqual(2);
      for (const [index, factor] of [
        [7, 150],
        [20, 5],
        [31, 0.2],
      ] as const)
        samples[index] = { ...samples[index]!, seconds: [samples[index]!.seconds[0]! * factor] };
      expect(outliers('attend', 'f16', samples)).toEqual(expect.arrayContaining([7, 20, 31]));
      expect(outliers('attend', 'f16', samples).length).toBeLessThanOrEqual(7);
    }
  });

  it('restores the errors of a clean calibration once they are re-measured', () => {
    const cleaned = runExperiment(attend, { noise: 0.05, count: 50, pool: 400, seed: 4, outlierShare: 0.06 });
    expect(median(cleaned.errors)).toBeLessThan(0.06);
  });

  it('has nothing to say about two points', () => {
    expect(outliers('rmsnorm', 'norm', normSamples([normShape(1, 512), normShape(2, 512)]))).toEqual([]);
  });
});

function median(values: number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1]!;
}
