/**
 * Fits what the kernels of a class share on a device: the law, the variances of what deviates from it, and how wide
 * intervals must be for kernels and shapes that were left out. Only fitting imports it; predicting needs predictor.ts.
 */
import { groups as groupBy } from 'd3-array';
import type { Calibration, Predictor, Sample } from '../../schema/calibration.js';
import { correctedSeconds, driftExponentOf, readCalibration, typicalSeconds } from '../../schema/drift.js';
import { CONSTANTS } from '../constants.js';
import { TERMS_VERSION, type KernelName } from '../../../kernels/registry.js';
import { conformalQuantile, FEWEST_FOR_QUANTILE, kappaOf, lackPerOctave } from '../conformal.js';
import { descend } from '../descend.js';
import { fitLaw } from '../law.js';
import { Process, type Hyperparameters, type Place } from '../process.js';
import {
  Calls,
  classOf,
  executedWork,
  measuredPoints,
  NORMAL_90,
  predictFrom,
  scalesOf,
  type Lawful,
  type Model,
  type Point,
} from '../predictor.js';
import { sha256 } from '../../numbers/sha256.js';
import { mean, median } from '../../numbers/statistics.js';

/** A residual beyond this many deviations (1.48 · MAD, the deviation of normal residuals) is an outlier, ... */
const OUTLIER_DEVIATIONS = CONSTANTS.outlierDeviations.value;
const MAD_TO_DEVIATION = 1.48;
/** ... unless it is smaller than this, log units. */
const SMALLEST_OUTLIER = CONSTANTS.outlierLeast.value;
/** More than this share of outliers is no longer noise but a kernel that the terms do not describe. */
const MAX_OUTLIER_SHARE = CONSTANTS.outlierShare.value;
/** A half has this many repetitions at least. */
const FEWEST_REPETITIONS = CONSTANTS.fewestRepetitions.value;
/** Medians of the hyperparameters before data, as the search sees them: logs of deviations, and of octaves. */
const PRIOR = [
  CONSTANTS.variantPrior,
  CONSTANTS.termPrior,
  CONSTANTS.signalPrior,
  CONSTANTS.noisePrior,
  CONSTANTS.lengthPrior,
].map(({ value }) => Math.log(value));
const SPREAD = CONSTANTS.priorSpread.value;
/** They stay within this of the prior's, and are found to that. */
const MOST_SHIFT = 5;
const FINEST = 0.06;

/**
 * SHA-256 (hex) over kernel, variant and the (shape, seconds, drift where there is one) of the variant's samples: which
 * data a predictor belongs to. Neither the order of samples nor the order of shape fields enters; the order of
 * repetitions does.
 */
export function digestSamples(kernel: KernelName, variant: string, samples: readonly Sample[]): string {
  const lines = samples
    .filter((sample) => sample.variant === variant)
    .map(({ shape, seconds, drift }) =>
      JSON.stringify([Object.entries(shape).sort(([a], [b]) => (a < b ? -1 : 1)), seconds, ...(drift ? [drift] : [])]),
    )
    .sort();
  return sha256(JSON.stringify([kernel, variant, lines]));
}

/** The points of one kernel's variant. */
interface Group {
  readonly kernel: KernelName;
  readonly variant: string;
  readonly samples: readonly Sample[];
  readonly points: readonly Point[];
}

const groupOf = (kernel: KernelName, variant: string, samples: readonly Sample[]): Group => ({
  kernel,
  variant,
  samples,
  points: measuredPoints(kernel, variant, samples),
});

/** The groups of every class. A variant's calls are of one class. */
const byClass = (groups: readonly Group[]): Group[][] =>
  groupBy(groups, (group) => classOf({ ...group, shape: group.points[0]!.shape })).map(([, all]) => all);

/**
 * Variance of a shape's time around what was measured: every point is visited at two times far apart, and repetitions
 * are kept in their order, so it is how far the typical times of both halves differ. Infinite where too few samples
 * have two halves.
 */
function measuredVarianceOf(groups: readonly Group[]): number {
  const typical = (part: readonly number[]): number => Math.log(typicalSeconds(part));
  const differences = groups.flatMap(({ variant, samples }) => {
    const own = samples.filter((s) => s.variant === variant);
    const exponent = driftExponentOf(own);
    return own.flatMap((sample) => {
      const times = correctedSeconds(sample, exponent);
      const half = Math.floor(times.length / 2);
      return half < FEWEST_REPETITIONS ? [] : [Math.abs(typical(times.slice(0, half)) - typical(times.slice(half)))];
    });
  });
  if (differences.length < FEWEST_FOR_QUANTILE) return Infinity;
  return Math.max(CONSTANTS.leastDeviation.value, conformalQuantile(differences) / NORMAL_90) ** 2;
}

/** What the groups of a class share. */
type Shared = Omit<Model, 'termScales' | 'quantile' | 'quantileWithout' | 'kappaPerOctave'>;

interface ClassFit {
  readonly shared: Shared;
  readonly termScales: ReadonlyMap<KernelName, number[]>;
}

/** @param measuredVariance of all classes together */
function fitClass(groups: readonly Group[], measuredVariance: number): ClassFit {
  const timed = groups.flatMap(({ kernel, variant, points }) =>
    points.map(({ shape, seconds }) => ({ work: executedWork({ kernel, variant, shape }), seconds })),
  );
  const fastest = (of: 'bytes' | 'operations'): number =>
    timed.reduce((most, { work, seconds }) => Math.max(most, work[of] / seconds), 1);
  const [bytes, operations] = [fastest('bytes'), fastest('operations')];
  const fitted = fitLaw(timed, { memoryBytesPerSecond: bytes, operationsPerSecond: operations, linkBytesPerSecond: 1 });
  const slowed = (slower: number): Lawful => ({
    floorSeconds: fitted.floorSeconds * slower,
    bytesPerSecond: (fitted.bandwidthShare * bytes) / slower,
    operationsPerSecond: (fitted.peakShare * operations) / slower,
  });
  // The typical variant, not the typical point, sets how fast the class is.
  const lawful = slowed(Math.exp(mean(groups.map((group) => median(placed(group, slowed(1)).y)))));
  const scales = new Map<KernelName, number[]>();
  for (const { kernel } of groups) {
    const shares = groups
      .filter((group) => group.kernel === kernel)
      .flatMap(({ variant, points }) => {
        const calls = new Calls(kernel, variant, lawful);
        return points.map(({ shape }) => calls.sharesAt(shape));
      });
    scales.set(kernel, scalesOf(shares));
  }
  const located = groups.map((group) => placed(group, lawful, scales.get(group.kernel)));
  const hyper = likeliest((h) =>
    located.reduce((sum, { places, y }) => sum + new Process(places, y, h).surprise(y), 0),
  );
  return {
    shared: {
      ...lawful,
      ...hyper,
      measuredVariance: Math.min(measuredVariance, hyper.noiseVariance),
      longestSeconds: Math.max(...located.map(({ longestSeconds }) => longestSeconds)),
    },
    termScales: scales,
  };
}

/** Where the points of a group lie, and the logarithms of their times over the law's. */
function placed(
  { kernel, variant, points }: Group,
  lawful: Lawful,
  scales: readonly number[] = [],
): { places: Place[]; y: number[]; longestSeconds: number } {
  const calls = new Calls(kernel, variant, lawful);
  const shapes = points.map(({ shape }) => shape);
  const seconds = shapes.map((shape) => calls.secondsAt(shape));
  return {
    places: shapes.map((shape, i) => calls.placeAt(shape, scales, seconds[i])),
    y: points.map((point, i) => Math.log(point.seconds / seconds[i]!)),
    longestSeconds: Math.max(...seconds),
  };
}

/** Maximum a posteriori. @param surprise negative log likelihood */
function likeliest(surprise: (hyper: Hyperparameters) => number): Hyperparameters {
  const toHyper = (x: readonly number[]): Hyperparameters => {
    const [variant, term, signal, noise] = x.map((log) => Math.exp(2 * log));
    return {
      effectVariances: [variant!, term!],
      signalVariance: signal!,
      noiseVariance: noise!,
      lengthScale: Math.exp(x[4]!),
    };
  };
  const bounds = PRIOR.map((log) => [log - MOST_SHIFT, log + MOST_SHIFT] as const);
  return toHyper(
    descend(PRIOR, bounds, FINEST, (x) =>
      x.reduce((sum, log, i) => sum + ((log - PRIOR[i]!) / SPREAD) ** 2 / 2, surprise(toHyper(x))),
    ),
  );
}

/** A point that was left out of everything that predicts it. */
interface Missed {
  readonly error: number;
  readonly deviation: number;
  readonly octavesLonger: number;
}

/** Hides points: by number of their group, and their number in it, from the shortest. */
type Hides = (group: number, place: number, count: number) => boolean;

/** Predicts what is hidden from a fit to the rest, by group. */
function missedBy(groups: readonly Group[], hides: Hides): Missed[][] {
  const parts = groups.map((group, g) => {
    const sorted = [...group.points].sort((a, b) => a.seconds - b.seconds);
    const isHidden = (_: Point, i: number): boolean => hides(g, i, sorted.length);
    return { group, hidden: sorted.filter(isHidden), known: sorted.filter((p, i) => !isHidden(p, i)) };
  });
  const known = parts.map(({ group, known: points }) => ({ ...group, points })).filter((g) => g.points.length > 0);
  if (known.length === 0) return groups.map(() => []);
  const { shared, termScales } = fitClass(known, Infinity);
  const plain = { ...shared, quantile: 1, quantileWithout: 1, kappaPerOctave: 0 };
  return parts.map(({ group: { kernel, variant }, hidden, known: points }) => {
    const predict = predictFrom(kernel, variant, points, { ...plain, termScales: termScales.get(kernel) ?? [] });
    return hidden.map(({ shape, seconds }) => {
      const { seconds: predicted, halfWidthLog: deviation, octavesLonger } = predict(shape);
      return { error: Math.log(seconds / predicted), deviation, octavesLonger };
    });
  });
}

/** A part of the points, or of the groups, is hidden in turn. */
const FOLDS = 5;

/** What was missed of each group of a class by leaving out points, whole variants, and their longer halves. */
function holdOut(groups: readonly Group[]): Record<'points' | 'variants' | 'longer', Missed[][]> {
  const inTurn = (hides: (fold: number) => Hides): Missed[][] => {
    const folds = Array.from({ length: FOLDS }, (_, fold) => missedBy(groups, hides(fold)));
    return groups.map((_, g) => folds.flatMap((fold) => fold[g]!));
  };
  return {
    points: inTurn((fold) => (g, place) => (g + place) % FOLDS === fold),
    variants: inTurn((fold) => (g) => g % FOLDS === fold),
    longer: missedBy(groups, (_, place, count) => place >= Math.ceil(count / 2)),
  };
}

/** How wide intervals are on this device. A variant's calls err together, so variants count alike. */
function widthsOf(
  held: readonly ReturnType<typeof holdOut>[],
): Pick<Model, 'quantile' | 'quantileWithout' | 'kappaPerOctave'> {
  const scores = (of: 'points' | 'variants'): number[][] =>
    held.flatMap((one) => one[of].map((list) => list.map(({ error, deviation }) => Math.abs(error) / deviation)));
  const quantile = Math.max(NORMAL_90, conformalQuantile(scores('points')));
  const lacks = held.flatMap(({ longer }) =>
    longer.map((list) => list.map((m) => lackPerOctave(m.error, quantile * m.deviation, m.octavesLonger))),
  );
  return {
    quantile,
    quantileWithout: Math.max(quantile, conformalQuantile(scores('variants'))),
    kappaPerOctave: kappaOf(lacks, FEWEST_FOR_QUANTILE),
  };
}

/** The predictors of a device's kernels, class by class; says which class is next. */
function* predictorsOf(
  classes: readonly (readonly Group[])[],
): Generator<Group, { group: Group; predictor: Predictor }[]> {
  const measuredVariance = measuredVarianceOf(classes.flat());
  const fits: { groups: readonly Group[]; fit: ClassFit }[] = [];
  const held: ReturnType<typeof holdOut>[] = [];
  for (const groups of classes) {
    yield groups[0]!;
    fits.push({ groups, fit: fitClass(groups, measuredVariance) });
    held.push(holdOut(groups));
  }
  const widths = widthsOf(held);
  return fits.flatMap(({ groups, fit }, c) =>
    groups.map((group, g) => {
      const missed = held[c]!.points[g]!;
      const errors = missed.map(({ error }) => Math.abs(Math.expm1(-error)));
      const inside = missed.filter(({ error, deviation }) => Math.abs(error) <= widths.quantile * deviation);
      const predictor = {
        ...fit.shared,
        ...widths,
        termScales: fit.termScales.get(group.kernel)!,
        modelVersion: TERMS_VERSION,
        looMedianError: errors.length > 0 ? median(errors) : Math.expm1(widths.quantileWithout),
        looP90Error: conformalQuantile(errors),
        looCoverage: inside.length / Math.max(1, missed.length),
        samplesDigest: digestSamples(group.kernel, group.variant, group.samples),
      };
      return { group, predictor };
    }),
  );
}

/** Fits to the samples of one variant alone (others are ignored), as if no other kernel had been measured. */
export function fitPredictor(kernel: KernelName, variant: string, samples: readonly Sample[]): Predictor {
  const group = groupOf(kernel, variant, samples);
  if (group.points.length === 0)
    throw new Error(
      `cannot fit ${kernel} (${variant}): none of the ${samples.length} samples is of this variant; measure it first`,
    );
  const fitted = predictorsOf([[group]]);
  for (let step = fitted.next(); ; step = fitted.next()) if (step.done) return step.value[0]!.predictor;
}

/** Fits a predictor for every kernel and variant that has samples; names the first of each class before its turn. */
export function* fitting(calibration: Calibration): Generator<{ kernel: KernelName; variant: string }> {
  // Predictors are those of the stored kernels.
  const { kernels } = readCalibration(calibration);
  const groups = kernels.flatMap((k) =>
    [...new Set(k.samples.map((s) => s.variant))].map((variant) => groupOf(k.kernel as KernelName, variant, k.samples)),
  );
  for (const { group, predictor } of yield* predictorsOf(byClass(groups)))
    kernels.find((k) => k.kernel === group.kernel)!.predictors[group.variant] = predictor;
}

/**
 * Indices of samples to re-measure: |leave-one-out residual| > max(4 · 1.48 · MAD, log 1.5). The worst point is taken
 * out before the next fit, since one bad time spoils its neighbours' residuals and hides behind the noise it causes;
 * points that the final fit explains after all do not come back, which costs a repetition at most.
 */
export function outliers(kernel: KernelName, variant: string, samples: readonly Sample[]): number[] {
  let group = groupOf(kernel, variant, samples);
  const most = Math.max(1, Math.floor(MAX_OUTLIER_SHARE * group.points.length));
  const found: Point[] = [];
  while (found.length < most && group.points.length >= 3) {
    const { shared, termScales } = fitClass([group], Infinity);
    const { places, y } = placed(group, shared, termScales.get(kernel));
    const sizes = new Process(places, y, shared).leftOut().map(Math.abs);
    const worst = sizes.reduce((best, size, i) => (size > sizes[best]! ? i : best), 0);
    if (sizes[worst]! <= Math.max(OUTLIER_DEVIATIONS * MAD_TO_DEVIATION * median(sizes), SMALLEST_OUTLIER)) break;
    found.push(group.points[worst]!);
    group = { ...group, points: group.points.filter((_, i) => i !== worst) };
  }
  return found.flatMap((point) => point.sampleIndices).sort((a, b) => a - b);
}
