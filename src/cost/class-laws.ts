/**
 * What the kernels of one class tell about each other on one device. All of a class follow one law (law.ts:
 * launch, then bytes or operations at a share of the device's ceilings), and each kernel's variant deviates from it by
 * a factor of its own. A variant with few points, or far outside them, borrows the law: of two intervals the narrower
 * one prices it.
 */
import { CONSTANTS } from './constants.js';
import { KERNELS, workOf, type KernelCall, type KernelName } from '../../kernels/registry.js';
import type { OpWork, Rates as OpRates } from '../../kernels/op-class.js';
import type { TunedClass } from '../../kernels/tuned.js';
import type { Calibration } from '../schema/calibration.js';
import { fitLaw, lawSeconds, type Law } from './law.js';
import { conformalQuantile, lackPerOctave } from './conformal.js';
import { measuredPoints, NORMAL_90, type Prediction } from './predictor.js';

/** Fewer points than this of a class have no law. */
const FEWEST_POINTS = CONSTANTS.classFewestPoints.value;
/** Numbers of a law that are fitted. */
const FITTED = 3;
/** Deviation of a law's residuals that is never gone below: about what repetitions of one shape differ by. */
const LEAST_DEVIATION = CONSTANTS.leastDeviation.value;
/** Deviation inside a variant before anything is known of it: what two machines had over all classes. */
const USUAL_DEVIATION = CONSTANTS.classDeviation.value;
/** Widening for each octave beyond a variant's longest call, log units: short calls cannot show that it may be less. */
const KAPPA_FLOOR = CONSTANTS.classPerOctaveLeast.value;

interface Measured {
  /** Where the call lies: log2 of the law's time without its floor. */
  readonly place: number;
  /** log of the time over the law's. */
  readonly residual: number;
}

/** What a variant's points say of a further one: its residual, the deviation from it, and where they end. */
interface Variant {
  readonly mean: number;
  readonly deviation: number;
  readonly end: number;
}

interface ClassLaw {
  readonly law: Law;
  readonly points: number;
  /** By kernel and variant. */
  readonly variants: ReadonlyMap<string, Variant>;
  /** Where the class's longest call lies, beyond which a variant without points is unsure. */
  readonly end: number;
  /** Variance of residuals inside a variant, and of the variants' own factors. */
  readonly within: number;
  readonly between: number;
  readonly center: number;
  /** 90 % quantile of the residuals over their predicted deviations, each left out in turn. */
  readonly quantile: number;
  /** Widening for each octave beyond a variant's longest call, log units. */
  readonly kappa: number;
}

/** A prediction by the law of a class, and what it was made of. */
interface ClassPrediction extends Pick<Prediction, 'seconds' | 'halfWidthLog'> {
  readonly law: Law;
  readonly work: OpWork;
  readonly rates: OpRates;
  /** Measured shapes of the class. */
  readonly points: number;
}

/** Predicts any call; null where its class has too few points. */
export type ClassLaws = (call: KernelCall) => ClassPrediction | null;

/** What merges, joins and adds for another kernel has no class of its own. */
const classOf = ({ kernel, variant, shape }: KernelCall): TunedClass =>
  KERNELS[kernel].tuned(shape, variant)?.class ?? 'small';

const keyOf = ({ kernel, variant }: Pick<KernelCall, 'kernel' | 'variant'>): string => `${kernel}/${variant}`;

function ownWork(call: KernelCall): OpWork {
  const { kernel, shape, variant } = call;
  const { readBytes, writeBytes, flops } = workOf(call);
  return { bytes: readBytes + writeBytes, operations: KERNELS[kernel].executed?.(shape, variant) ?? flops };
}

interface Timed {
  readonly key: string;
  readonly work: OpWork;
  readonly seconds: number;
}

/**
 * Fits the laws of a device's classes to all of its measured kernels.
 * @param stale kernels whose times are not used
 */
export function classLaws(
  {
    kernels,
    ceilings,
  }: Pick<Calibration, 'ceilings'> & {
    readonly kernels: readonly Pick<Calibration['kernels'][number], 'kernel' | 'samples'>[];
  },
  stale: ReadonlySet<string>,
): ClassLaws {
  const rates: OpRates = {
    memoryBytesPerSecond: ceilings.readBytesPerSecond,
    operationsPerSecond: ceilings.f32FlopsPerSecond,
    linkBytesPerSecond: 1,
  };
  const byClass = new Map<TunedClass, Timed[]>();
  for (const { kernel: name, samples } of kernels) {
    if (stale.has(name)) continue;
    const kernel = name as KernelName;
    for (const variant of new Set(samples.map((s) => s.variant)))
      for (const { shape, seconds } of measuredPoints(kernel, variant, samples)) {
        const call: KernelCall = { kernel, variant, shape };
        const of = classOf(call);
        const list = byClass.get(of) ?? [];
        byClass.set(of, list);
        list.push({ key: keyOf(call), work: ownWork(call), seconds });
      }
  }
  const laws = new Map<TunedClass, ClassLaw>();
  for (const [of, points] of byClass) if (points.length >= FEWEST_POINTS) laws.set(of, fitClass(points, rates));
  return (call) => {
    const found = laws.get(classOf(call));
    return found ? predict(found, keyOf(call), ownWork(call), rates) : null;
  };
}

const placeOf = (law: Law, work: OpWork, rates: OpRates): number =>
  Math.log2(Math.max(lawSeconds({ ...law, floorSeconds: 0 }, work, rates), Number.MIN_VALUE));

function fitClass(points: readonly Timed[], rates: OpRates): ClassLaw {
  const law = fitLaw(points, rates);
  const variants = new Map<string, Measured[]>();
  for (const { key, work, seconds } of points) {
    const list = variants.get(key) ?? [];
    variants.set(key, list);
    list.push({
      place: placeOf(law, work, rates),
      residual: Math.log(seconds / lawSeconds(law, work, rates)),
    });
  }
  const lists = [...variants.values()];
  const of = variances(lists);
  const quantile = quantileOf(of, lists);
  return {
    ...of,
    law,
    points: points.length,
    quantile,
    kappa: kappaOf(of, lists, quantile),
    end: Math.max(...lists.flat().map(({ place }) => place)),
    variants: new Map(
      [...variants].map(([key, list]) => [
        key,
        { ...posterior(of, list), end: Math.max(...list.map(({ place }) => place)) },
      ]),
    ),
  };
}

const meanOf = (list: readonly Measured[]): number =>
  list.reduce((sum, { residual }) => sum + residual, 0) / Math.max(1, list.length);

/** Moments of the residuals; a class of few repeated variants leans on the usual deviation. */
function variances(lists: readonly (readonly Measured[])[]): Pick<ClassLaw, 'within' | 'between' | 'center'> {
  let [squares, freedom] = [FITTED * USUAL_DEVIATION ** 2, FITTED];
  for (const list of lists) {
    const mean = meanOf(list);
    for (const { residual } of list) squares += (residual - mean) ** 2;
    freedom += list.length - 1;
  }
  const within = Math.max(LEAST_DEVIATION ** 2, squares / freedom);
  const means = lists.map(meanOf);
  const center = means.reduce((sum, mean) => sum + mean, 0) / means.length;
  const spread = means.reduce((sum, mean) => sum + (mean - center) ** 2, 0) / Math.max(1, means.length - 1);
  const noise = lists.reduce((sum, list) => sum + within / list.length, 0) / lists.length;
  return { within, between: Math.max(LEAST_DEVIATION ** 2, spread - noise), center };
}

/** What a variant's points say of a further one: its expected residual, and the deviation from it. */
function posterior(
  { within, between, center }: Pick<ClassLaw, 'within' | 'between' | 'center'>,
  own: readonly Measured[],
): { mean: number; deviation: number } {
  const weight = (own.length * between) / (own.length * between + within);
  return {
    mean: center + weight * (meanOf(own) - center),
    deviation: Math.sqrt(within + between * (1 - weight)),
  };
}

function quantileOf(
  of: Pick<ClassLaw, 'within' | 'between' | 'center'>,
  lists: readonly (readonly Measured[])[],
): number {
  const scores = lists.flatMap((list) =>
    list.map((left) => {
      const { mean, deviation } = posterior(
        of,
        list.filter((one) => one !== left),
      );
      return Math.abs(left.residual - mean) / deviation;
    }),
  );
  // The law was fitted to the points that are left out here.
  const lost = Math.sqrt(scores.length / Math.max(1, scores.length - FITTED));
  return Math.max(NORMAL_90, lost * conformalQuantile(scores));
}

/** What the half-width lacked, per octave, when the longer half of a variant's points was hidden: its 90 % quantile. */
function kappaOf(
  of: Pick<ClassLaw, 'within' | 'between' | 'center'>,
  lists: readonly (readonly Measured[])[],
  quantile: number,
): number {
  const lacks = lists.flatMap((list) => {
    const sorted = [...list].sort((a, b) => a.place - b.place);
    const seen = sorted.slice(0, Math.ceil(sorted.length / 2));
    const { mean, deviation } = posterior(of, seen);
    const end = seen.at(-1)!.place;
    return sorted
      .slice(seen.length)
      .map(({ place, residual }) => lackPerOctave(residual - mean, quantile * deviation, place - end));
  });
  return Math.max(KAPPA_FLOOR, lacks.length < FEWEST_POINTS ? 0 : conformalQuantile(lacks));
}

function predict(c: ClassLaw, key: string, work: OpWork, rates: OpRates): ClassPrediction {
  const { mean, deviation, end } = c.variants.get(key) ?? { ...posterior(c, []), end: c.end };
  const { law, points } = c;
  return {
    law,
    work,
    rates,
    points,
    seconds: lawSeconds(c.law, work, rates) * Math.exp(mean),
    halfWidthLog: c.quantile * deviation + c.kappa * Math.max(0, placeOf(c.law, work, rates) - end),
  };
}

/**
 * A variant's own prediction, joined with its class's where that is surer: the estimate is their mean by the inverse
 * squares of their half-widths, the half-width the smaller of both.
 */
export function narrowed<P extends Pick<Prediction, 'seconds' | 'halfWidthLog'>>(
  own: P,
  law: Pick<Prediction, 'seconds' | 'halfWidthLog'> | null,
): P {
  if (law === null || law.halfWidthLog >= own.halfWidthLog) return own;
  const weight = law.halfWidthLog ** 2 / (law.halfWidthLog ** 2 + own.halfWidthLog ** 2);
  return {
    ...own,
    seconds: Math.exp(weight * Math.log(own.seconds) + (1 - weight) * Math.log(law.seconds)),
    halfWidthLog: law.halfWidthLog,
  };
}
