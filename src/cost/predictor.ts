/**
 * Time and 90 % interval of one kernel call from the samples of its variant and what all kernels of its class share.
 *
 * log t(x) = log law(x) + effects of the variant + g(x) + noise: a factor of the variant and of each physical term of
 * its kernel, and a smooth part over octaves of the shape (process.ts). All are normal with the class's variances, so a
 * variant with many points, with few and with none is predicted alike. Fitting: fit/fit.ts. It runs in a browser.
 */
import { CONSTANTS } from './constants.js';
import type { Predictor, Sample } from '../schema/calibration.js';
import { KERNELS, workOf, type KernelCall, type KernelName } from '../../kernels/registry.js';
import type { Shape } from '../../kernels/spec.js';
import type { OpWork, Rates } from '../../kernels/op-class.js';
import type { TunedClass } from '../../kernels/tuned.js';
import { correctedSeconds, driftExponentOf, typicalSeconds } from '../schema/drift.js';
import { lawSeconds, type Law } from './law.js';
import { Process, type Place } from './process.js';
import type { Because } from './explain.js';

/** Shape values above this enter the model as this: products of a dozen of them stay far below the float64 range. */
const VALUE_LIMIT = 2 ** 50;
/** A term that is not finite (0 / 0 splits, say) counts as 0 or this, so that no prediction is NaN or infinite. */
const TERM_LIMIT = 1e200;
/** No term counts for more than so many times what it does in measured calls: effects are linear near those alone. */
const FEATURE_LIMIT = CONSTANTS.mostOfTerm.value;
/** Predicted times stay within a picosecond and 30 000 years. */
const LOG_SECONDS_LIMIT = Math.log(1e12);
/** Half-widths stay below a factor of 22 000 either way: beyond it an interval only says "unknown". */
const HALF_WIDTH_LIMIT = 10;
/** Two-sided 90 % of a normal distribution, in deviations. */
export const NORMAL_90 = CONSTANTS.normal90.value;

/** A distinct measured shape: samples at the same shape are pooled, else leaving one out would leave its twin in. */
export interface Point {
  shape: Shape;
  /** Typical time of all repetitions with the machine's drift taken off, seconds (schema/drift.ts). */
  seconds: number;
  /** Indices into the samples given. */
  sampleIndices: number[];
}

export type Evidence = 'measured' | 'interpolated' | 'extrapolated';

export interface Prediction {
  seconds: number;
  /** 90 % half-width in log units: the time lies in seconds · exp(±halfWidthLog). */
  halfWidthLog: number;
  evidence: Evidence;
  /** Octaves outside the measured box, summed over the shape fields. */
  octavesOutside: number;
  /** Octaves by which it is longer than any measured call, by the law. */
  octavesLonger: number;
}

function valueOf(shape: Shape, name: string): number {
  const value = shape[name];
  if (value === undefined) throw new Error(`kernel shape lacks ${name}`);
  return value;
}

/** Distinct shapes among the samples of `variant`, in order of first appearance. */
export function measuredPoints(kernel: KernelName, variant: string, samples: readonly Sample[]): Point[] {
  const indicesByShape = new Map<string, number[]>();
  samples.forEach((sample, index) => {
    if (sample.variant !== variant) return;
    const key = KERNELS[kernel].dims.map((name) => valueOf(sample.shape, name)).join(' ');
    const indices = indicesByShape.get(key);
    if (indices) indices.push(index);
    else indicesByShape.set(key, [index]);
  });
  const exponent = driftExponentOf(samples.filter((sample) => sample.variant === variant));
  return [...indicesByShape.values()].map((sampleIndices) => ({
    shape: samples[sampleIndices[0]!]!.shape,
    seconds: typicalSeconds(sampleIndices.flatMap((index) => correctedSeconds(samples[index]!, exponent))),
    sampleIndices,
  }));
}

/** Coordinate of a shape value on its axis, in octaves; 0 is allowed. */
export function coordinate(value: number): number {
  return Math.log2(1 + Math.min(value, VALUE_LIMIT));
}

/** A shape whose sizes are not too large. */
function limitedOf(kernel: KernelName, shape: Shape): Shape {
  const { dims } = KERNELS[kernel];
  return dims.every((name) => valueOf(shape, name) <= VALUE_LIMIT)
    ? shape
    : Object.fromEntries(dims.map((name) => [name, Math.min(valueOf(shape, name), VALUE_LIMIT)]));
}

/** The kernel's physical terms at a shape, each finite. */
function termsAt(kernel: KernelName, variant: string, shape: Shape): number[] {
  const limited = limitedOf(kernel, shape);
  const values = KERNELS[kernel].terms(limited, variant);
  for (let j = 0; j < values.length; j++) {
    const value = values[j]!;
    if (!(value <= TERM_LIMIT)) values[j] = Number.isNaN(value) ? 0 : TERM_LIMIT;
  }
  return values;
}

/**
 * Octaves outside the measured box, summed over the kernel's fields. A field that never varied and differs now was
 * never tested at all: that counts as one octave more than its distance.
 */
function boxOf(kernel: KernelName, shapes: readonly Shape[]): (shape: Shape) => number {
  if (shapes.length === 0) return () => 0;
  const fields = KERNELS[kernel].dims.map((name) => {
    const values = shapes.map((shape) => coordinate(valueOf(shape, name)));
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return { name, low, high, untested: low < high ? 0 : 1 };
  });
  return (shape) =>
    fields.reduce((octaves, { name, low, high, untested }) => {
      const at = coordinate(valueOf(shape, name));
      const beyond = Math.max(0, low - at, at - high);
      return beyond > 0 ? octaves + beyond + untested : octaves;
    }, 0);
}

/** What merges, joins and adds for another kernel has no class of its own. */
export const classOf = ({ kernel, variant, shape }: KernelCall): TunedClass =>
  KERNELS[kernel].tuned(shape, variant)?.class ?? 'small';

/** A size that is no finite number (of 0 scalars, say) counts as 0. */
const finite = (x: number): number => (Number.isFinite(x) ? Math.max(0, x) : 0);

/** The work of a call as its threads do it. */
export function executedWork({ kernel, variant, shape }: KernelCall): OpWork {
  const limited = limitedOf(kernel, shape);
  const { readBytes, writeBytes, flops } = workOf({ kernel, variant, shape: limited });
  const operations = KERNELS[kernel].executed?.(limited, variant) ?? flops;
  return { bytes: finite(readBytes + writeBytes), operations: finite(operations) };
}

/** The law of a class on a device: seconds that no call falls below, and rates that are reached. */
export type Lawful = Pick<Predictor, 'floorSeconds' | 'bytesPerSecond' | 'operationsPerSecond'>;

/** The same in units of `lawSeconds`. */
export const lawOf = ({ floorSeconds, bytesPerSecond, operationsPerSecond }: Lawful): { law: Law; rates: Rates } => ({
  law: { floorSeconds, bandwidthShare: 1, peakShare: 1 },
  rates: { memoryBytesPerSecond: bytesPerSecond, operationsPerSecond, linkBytesPerSecond: 1 },
});

/** Calls of a kernel's variant, as the law of their class sees them. */
export class Calls {
  readonly #law: Law;
  readonly #rates: Rates;

  constructor(
    readonly kernel: KernelName,
    readonly variant: string,
    lawful: Lawful,
  ) {
    ({ law: this.#law, rates: this.#rates } = lawOf(lawful));
  }

  /** Seconds by the law. */
  secondsAt(shape: Shape): number {
    return lawSeconds(this.#law, executedWork({ kernel: this.kernel, variant: this.variant, shape }), this.#rates);
  }

  /** Each term of the kernel over these seconds. */
  sharesAt(shape: Shape): number[] {
    const seconds = this.secondsAt(shape);
    return termsAt(this.kernel, this.variant, shape).map((term) => term / seconds);
  }

  /**
   * Octaves of every size; features: 1, and each term's share relative to what it is in measured calls.
   * @param scales root mean squares of these shares (`scalesOf`); none where no call of the kernel was measured
   */
  placeAt(shape: Shape, scales: readonly number[], seconds = this.secondsAt(shape)): Place {
    const terms = scales.length > 0 ? termsAt(this.kernel, this.variant, shape) : [];
    return {
      x: KERNELS[this.kernel].dims.map((name) => coordinate(valueOf(shape, name))),
      features: [
        1,
        ...scales.map((scale, j) => (scale > 0 ? Math.min(FEATURE_LIMIT, terms[j]! / seconds / scale) : 0)),
      ],
    };
  }
}

/** Root mean square of each number over some lists. */
export const scalesOf = (lists: readonly (readonly number[])[]): number[] =>
  lists[0]!.map((_, j) =>
    Math.sqrt(lists.reduce((sum, row) => sum + Math.min(Number.MAX_VALUE, row[j]! ** 2), 0) / lists.length),
  );

/** What a prediction needs of a fitted predictor. */
export type Model = Omit<
  Predictor,
  'modelVersion' | 'looMedianError' | 'looP90Error' | 'looCoverage' | 'samplesDigest'
>;

/** Predicts one call; `because` takes the parts of the half-width. */
export type Predict = (shape: Shape, because?: Because) => Prediction;

/**
 * Returns the function that predicts one call. The factorisation happens at the first call; a prediction then costs
 * O(n) for the time and O(n²) for the deviation.
 */
export function makePredictor(
  kernel: KernelName,
  variant: string,
  samples: readonly Sample[],
  predictor: Predictor,
): Predict {
  let predict: Predict | undefined;
  return (shape, because) =>
    (predict ??= predictFrom(kernel, variant, measuredPoints(kernel, variant, samples), predictor))(shape, because);
}

/** The same, from distinct points and at once; without any the class tells alone. */
export function predictFrom(kernel: KernelName, variant: string, points: readonly Point[], model: Model): Predict {
  const calls = new Calls(kernel, variant, model);
  const shapes = points.map(({ shape }) => shape);
  const process = new Process(
    shapes.map((shape) => calls.placeAt(shape, model.termScales)),
    points.map(({ shape, seconds }) => Math.log(seconds / calls.secondsAt(shape))),
    model,
    model.noiseVariance - model.measuredVariance,
  );
  const octavesOutsideOf = boxOf(kernel, shapes);
  // Long calls of a kernel can follow what short ones do not show.
  const longest = shapes.reduce((most, shape) => Math.max(most, calls.secondsAt(shape)), 0) || model.longestSeconds;
  const quantile = points.length > 0 ? model.quantile : model.quantileWithout;
  const what = points.length > 0 ? 'measured shapes' : 'whole kernels';
  return (shape, because) => {
    const seconds = calls.secondsAt(shape);
    const { mean, deviation, point } = process.at(calls.placeAt(shape, model.termScales, seconds));
    const octavesOutside = octavesOutsideOf(shape);
    const between = Math.min(HALF_WIDTH_LIMIT, quantile * deviation);
    const longer = Math.max(0, Math.log2(seconds / longest));
    const beyond = Math.min(HALF_WIDTH_LIMIT - between, model.kappaPerOctave * longer);
    if (because) {
      const where = point >= 0 ? 'at this measured shape' : 'this far from measured shapes';
      const [one, times] = [Math.exp(deviation).toFixed(3), quantile.toFixed(2)];
      because(
        `the model's standard deviation ${where} is × ${one}; of ${what} of all kernels, left out and predicted, ` +
          `90 % came within ${times} such deviations: ${one}^${times}`,
        between,
      );
      if (beyond > 0)
        because(
          `it is ${longer.toFixed(1)} octaves longer than any measured call; the longer half of each kernel's ` +
            `shapes, left out, was off by × ${Math.exp(model.kappaPerOctave).toFixed(3)} more an octave`,
          beyond,
          'added',
        );
    }
    const logSeconds = Math.log(seconds) + mean;
    return {
      seconds: Math.exp(Math.min(LOG_SECONDS_LIMIT, Math.max(-LOG_SECONDS_LIMIT, logSeconds))),
      halfWidthLog: between + beyond,
      octavesLonger: longer,
      evidence: octavesOutside > 0 || points.length === 0 ? 'extrapolated' : point >= 0 ? 'measured' : 'interpolated',
      octavesOutside,
    };
  };
}
