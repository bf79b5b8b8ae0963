/**
 * How good the predictor is where the truth is known: synthetic kernels, most of their shapes hidden, the measured ones
 * chosen actively. Prints the errors of the hidden points, the coverage of the 90 % intervals and their half-widths.
 *
 *   npx esbuild --bundle --platform=node --format=esm scripts/coverage-experiment.ts --packages=external | node
 *     --input-type=module
 *
 * The environment variable POINTS sets how many points are measured (50), SEEDS the repetitions with other noise (2).
 */
import { mostTelling } from '../src/bench/calibrate/choose.js';
import { fitPredictor, outliers } from '../src/cost/fit/fit.js';
import { makePredictor } from '../src/cost/predictor.js';
import type { Sample } from '../src/schema/calibration.js';
import { KERNELS, type KernelName } from '../kernels/registry.js';
import type { Shape } from '../kernels/spec.js';
import { median } from '../src/numbers/statistics.js';

/** Uniform numbers in [0, 1) from a seed (mulberry32). */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

export function normalFrom(random: () => number): () => number {
  return () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}

export interface SyntheticKernel {
  title: string;
  kernel: KernelName;
  variant: string;
  /** Values of each shape field; the candidates are a random part of their product. */
  grid: Record<string, number[]>;
  /** True time, seconds. */
  seconds(shape: Record<string, number>): number;
}

const BYTES_PER_SECOND = 3.2e12;
const FLOPS_PER_SECOND = 4e13;
const UNITS = 132;
const REACH = { floorSeconds: 3e-6, bytesPerSecond: BYTES_PER_SECOND, operationsPerSecond: FLOPS_PER_SECOND };
const powers = (from: number, to: number, base = 2) =>
  Array.from({ length: to - from + 1 }, (_, i) => base ** (from + i));

/** Share of the bandwidth that a number of workgroups reaches. */
const occupancy = (workgroups: number) => workgroups / (workgroups + UNITS / 2);

export const SYNTHETIC_KERNELS: SyntheticKernel[] = [
  {
    title: 'attend, roofline max()',
    kernel: 'attend',
    variant: 'f16',
    grid: {
      sequences: powers(0, 6),
      kvHeads: [2, 8, 16],
      group: [1, 4, 8],
      context: [128, 256, 512, 1000, 1024, 2048, 3000, 4096, 8192, 16384, 32768],
      keyWidth: [64, 128],
      valueWidth: [64, 128],
      branchWidth: [0],
      branchHeads: [1],
      splits: [1, 4, 16],
      groupSize: [0],
    },
    seconds(s) {
      const work = KERNELS.attend.work(s, 'f16');
      const workgroups = s.sequences! * s.kvHeads! * s.splits!;
      return (
        4e-6 +
        Math.max(
          (work.readBytes + work.writeBytes) / (BYTES_PER_SECOND * occupancy(workgroups)),
          work.flops / (FLOPS_PER_SECOND * occupancy(workgroups)),
        )
      );
    },
  },
  {
    title: 'attend_rebuild, waves',
    kernel: 'attend_rebuild',
    variant: 'q4',
    grid: {
      sequences: powers(0, 5),
      kvHeads: [4, 8],
      group: [1, 2, 4],
      // Splits have at least 256 tokens, as schedules make them.
      context: powers(11, 18),
      rankK: [16, 32, 64, 128],
      rankV: [32, 64],
      latentHeads: [4],
      headDim: [128],
      splits: [1, 2, 4, 8],
      groupSize: [64],
    },
    seconds(s) {
      const workgroups = s.sequences! * s.kvHeads! * s.splits!;
      // 64 threads share rows of 32 codes a thread and take two tokens each; those past the end idle.
      const wide = 2 ** Math.ceil(Math.log2(Math.max(32, s.rankK!, s.rankV!) / 32));
      const round = 128 / wide;
      const tokens = Math.ceil(s.context! / s.splits! / round) * round;
      const perToken = 128 * 32 * wide * 2.2e-12 + s.group! * (128 + s.rankV!) * 3e-12 + 2e-9;
      return 5e-6 + Math.ceil(workgroups / UNITS) * tokens * perToken;
    },
  },
  {
    title: 'matmul, tiles + roofline',
    kernel: 'matmul',
    variant: 'f16',
    grid: {
      groups: [1, 8],
      m: [1, 2, 3, 4, 8, 12, 16, 24, 32, 64],
      k: [64, 128, 512, 1024, 2048, 4096, 5632],
      n: [64, 128, 512, 1024, 2048, 4096, 5632, 11264],
    },
    seconds({ groups, m, k, n }) {
      const tiles = groups! * Math.ceil(m! / 8) * Math.ceil(n! / 64);
      const memory = (2 * groups! * k! * n!) / (BYTES_PER_SECOND * occupancy(tiles * Math.max(1, k! / 512)));
      const compute = (Math.ceil(tiles / UNITS) * k! * 8 * 64 * 2) / (FLOPS_PER_SECOND / UNITS);
      return 3e-6 + Math.hypot(memory, compute) + k! * 1.2e-9;
    },
  },
  {
    title: 'rmsnorm, cache cliff',
    kernel: 'rmsnorm',
    variant: 'norm',
    grid: { rows: [...powers(0, 14), ...powers(1, 8, 3)], width: [512, 768, 1024, 1536, 2048, 3072, 4096, 5120, 8192] },
    seconds({ rows, width }) {
      const bytes = rows! * width! * 8;
      return (
        3e-6 +
        bytes / (bytes > 4e7 ? BYTES_PER_SECOND : 2.2 * BYTES_PER_SECOND) +
        Math.ceil(rows! / UNITS) * 2e-8 +
        width! * 3e-10
      );
    },
  },
];

/** A random part of the grid's product, without repetition. */
export function candidatesOf({ grid }: SyntheticKernel, count: number, random: () => number): Record<string, number>[] {
  const size = Object.values(grid).reduce((product, values) => product * values.length, 1);
  const chosen = new Set<number>();
  while (chosen.size < Math.min(count, size)) chosen.add(Math.floor(random() * size));
  return [...chosen].map((index) => {
    let rest = index;
    return Object.fromEntries(
      Object.entries(grid).map(([name, values]) => {
        const value = values[rest % values.length]!;
        rest = Math.floor(rest / values.length);
        return [name, value];
      }),
    );
  });
}

export function sampleOf(kernel: KernelName, variant: string, shape: Shape, seconds: number[]): Sample {
  const { readBytes, writeBytes, flops } = KERNELS[kernel].work(shape, variant);
  return { variant, shape: { ...shape }, tuning: {}, readBytes, writeBytes, flops, seconds, relativeError: 0 };
}

export interface Outcome {
  /** |predicted / true − 1| of each hidden point. */
  errors: number[];
  /** 90 % half-widths of the hidden points, log units. */
  halfWidths: number[];
  /** Hidden points whose new, noisy measurement lies inside the interval; whose true time does. */
  covered: number;
  coveredTruth: number;
  /** Octaves outside the measured box and whether the new measurement was covered, of each hidden point. */
  byDistance: { octaves: number; error: number; halfWidth: number; covered: boolean }[];
  hidden: number;
  /** Mean |log error| at the measured points of the posterior, and of the sample's own median. */
  posteriorError: number;
  medianError: number;
  /** Of the processor, so that a loaded machine says the same. */
  fitSeconds: number;
  looMedianError: number;
  looCoverage: number;
}

export interface Setting {
  /** Deviation of the log of a run's time. */
  noise: number;
  /** Points to measure, out of a pool of candidates. */
  count: number;
  pool: number;
  seed: number;
  /** Share of the runs that take 30 times as long; they are looked for and re-measured. */
  outlierShare?: number;
  /** Only shapes that pass may be measured. */
  measurable?: (shape: Shape) => boolean;
}

/** Measures actively chosen points and predicts all the others of the pool. */
export function runExperiment(
  synthetic: SyntheticKernel,
  { noise, count, pool, seed, outlierShare = 0, measurable = () => true }: Setting,
): Outcome {
  const { kernel, variant } = synthetic;
  const random = randomFrom(seed);
  const normal = normalFrom(random);
  const shapes = candidatesOf(synthetic, pool, random);
  const candidates = shapes.filter(measurable);
  /** One run of three repetitions: the noise is the run's, common to its repetitions. */
  const measure = (shape: Record<string, number>, outlier: boolean) => {
    const run = synthetic.seconds(shape) * Math.exp(noise * normal()) * (outlier ? 30 : 1);
    return sampleOf(kernel, variant, shape, [run, run * 1.002, run * 0.998]);
  };
  const samples: Sample[] = [];
  /** As calibrate chooses, all shapes alike. */
  const select = (): number =>
    mostTelling(
      synthetic,
      samples.map((s) => s.shape),
      candidates.map((shape) => ({ shape, share: 1 })),
      REACH,
    ).index;
  while (samples.length < count) {
    const [shape] = candidates.splice(select(), 1);
    samples.push(measure(shape!, random() < outlierShare));
  }
  if (outlierShare > 0)
    for (const index of outliers(kernel, variant, samples))
      samples[index] = measure({ ...samples[index]!.shape }, false);

  const hidden = [...candidates, ...shapes.filter((shape) => !measurable(shape))];
  const before = process.cpuUsage();
  const predictor = fitPredictor(kernel, variant, samples);
  const { user, system } = process.cpuUsage(before);
  const fitSeconds = (user + system) / 1e6;
  const predict = makePredictor(kernel, variant, samples, predictor);
  const outcome: Outcome = {
    errors: [],
    halfWidths: [],
    covered: 0,
    coveredTruth: 0,
    byDistance: [],
    hidden: hidden.length,
    posteriorError: 0,
    medianError: 0,
    fitSeconds,
    looMedianError: predictor.looMedianError,
    looCoverage: predictor.looCoverage,
  };
  for (const shape of hidden) {
    const truth = synthetic.seconds(shape);
    const { seconds, halfWidthLog, octavesOutside } = predict(shape);
    const error = Math.abs(seconds / truth - 1);
    const covered = Math.abs(Math.log((truth * Math.exp(noise * normal())) / seconds)) <= halfWidthLog;
    outcome.errors.push(error);
    outcome.halfWidths.push(halfWidthLog);
    outcome.byDistance.push({ octaves: octavesOutside, error, halfWidth: halfWidthLog, covered });
    if (covered) outcome.covered++;
    if (Math.abs(Math.log(truth / seconds)) <= halfWidthLog) outcome.coveredTruth++;
  }
  for (const { shape, seconds } of samples) {
    const truth = synthetic.seconds(shape);
    outcome.posteriorError += Math.abs(Math.log(predict(shape).seconds / truth)) / samples.length;
    outcome.medianError += Math.abs(Math.log(median(seconds) / truth)) / samples.length;
  }
  return outcome;
}

/** The value below which 90 % lie. */
export const p90 = (values: number[]): number =>
  [...values].sort((a, b) => a - b)[Math.floor(0.9 * (values.length - 1))]!;

function main(): void {
  const points = Number(process.env['POINTS'] ?? 50);
  const seeds = Number(process.env['SEEDS'] ?? 2);
  const percent = (x: number) => `${(100 * x).toFixed(1)} %`.padStart(9);
  const columns = [
    'median',
    'p90',
    'cov. run',
    'cov. true',
    'half-w.',
    'loo med.',
    'loo cov.',
    'at pts',
    'raw pts',
    'fit s',
  ];
  console.log('kernel'.padEnd(26) + 'noise'.padStart(7) + columns.map((c) => c.padStart(10)).join(''));
  for (const synthetic of SYNTHETIC_KERNELS) {
    for (const noise of [0, 0.05, 0.1]) {
      const runs = Array.from({ length: seeds }, (_, seed) =>
        runExperiment(synthetic, { noise, count: points, pool: 1000, seed: seed + 1 }),
      );
      const sum = (f: (o: Outcome) => number) => runs.reduce((total, run) => total + f(run), 0);
      const errors = runs.flatMap((run) => run.errors);
      const cells = [
        median(errors),
        p90(errors),
        sum((o) => o.covered) / sum((o) => o.hidden),
        sum((o) => o.coveredTruth) / sum((o) => o.hidden),
        median(runs.flatMap((run) => run.halfWidths)),
        ...[
          (o: Outcome) => o.looMedianError,
          (o: Outcome) => o.looCoverage,
          (o: Outcome) => o.posteriorError,
          (o: Outcome) => o.medianError,
        ].map((f) => sum(f) / seeds),
      ];
      console.log(
        synthetic.title.padEnd(26) +
          percent(noise).slice(2) +
          cells.map((c) => ' ' + percent(c)).join('') +
          (sum((o) => o.fitSeconds) / seeds).toFixed(2).padStart(10),
      );
    }
  }
  printOutside(points, seeds);
  printSpeed();
}

/** Extrapolation along one axis: the top octaves are never measured. */
function printOutside(points: number, seeds: number): void {
  const limits = [
    ['context', 2048],
    ['context', 2048],
    ['m', 4],
    ['rows', 1024],
  ] as const;
  const percent = (x: number) => `${(100 * x).toFixed(1)} %`.padStart(10);
  console.log(
    '\ntop four octaves never measured, 5 % noise'.padEnd(48) +
      ['median', 'p90', 'cov. run', 'half-w.'].map((c) => c.padStart(10)).join(''),
  );
  for (const [index, [axis, limit]] of limits.entries()) {
    const runs = Array.from({ length: seeds }, (_, seed) =>
      runExperiment(SYNTHETIC_KERNELS[index]!, {
        noise: 0.05,
        count: points,
        pool: 1000,
        seed: seed + 1,
        measurable: (s) => s[axis]! <= limit,
      }),
    );
    for (const [low, high] of [
      [0, 1.1],
      [1.1, 2.1],
      [2.1, 3.1],
      [3.1, 9],
    ] as const) {
      const there = runs.flatMap((run) => run.byDistance).filter(({ octaves }) => octaves > low && octaves <= high);
      if (there.length === 0) continue;
      const errors = there.map(({ error }) => error);
      console.log(
        `${SYNTHETIC_KERNELS[index]!.title}, ${low}-${high} octaves outside`.padEnd(47) +
          [
            median(errors),
            p90(errors),
            there.filter(({ covered }) => covered).length / there.length,
            median(there.map(({ halfWidth }) => halfWidth)),
          ]
            .map(percent)
            .join(''),
      );
    }
  }
}

/** Fit time and predictions per second at 60 points on the kernel with the most axes here. */
function printSpeed(): void {
  const synthetic = SYNTHETIC_KERNELS[1]!;
  const { kernel, variant } = synthetic;
  for (const count of [60, 120]) {
    const shapes = candidatesOf(synthetic, count, randomFrom(5));
    const samples = shapes.map((shape) => sampleOf(kernel, variant, shape, [synthetic.seconds(shape)]));
    const start = performance.now();
    const predictor = fitPredictor(kernel, variant, samples);
    const fitted = performance.now();
    const predict = makePredictor(kernel, variant, samples, predictor);
    const places = candidatesOf(synthetic, 1000, randomFrom(6));
    let calls = 0;
    for (const begin = performance.now(); performance.now() < begin + 1000; calls += places.length)
      places.forEach((shape) => predict(shape));
    console.log(
      `${count} points: fit ${((fitted - start) / 1e3).toFixed(2)} s, ${calls} ` + 'predictions in about a second',
    );
  }
}

if (process.env['VITEST'] === undefined) main();
