/** Why a step's time is what it is and as sure as it is: laws, data near it, what was left out to find its width. */
import { coordinate, executedWork, lawOf, measuredPoints, type Model } from './predictor.js';
import { isEstimate, type Interval, type Evidence } from './evidence.js';
import { priceStep, type KernelShare, type Pricer } from './latency.js';
import { busySeconds, lawSeconds, type Law } from './law.js';
import { forEachOp } from '../schedule/expand.js';
import { schedule, type Collective, type Configuration } from '../schedule/schedule.js';
import { KERNELS, type KernelCall } from '../../kernels/registry.js';
import type { OpWork, Rates } from '../../kernels/op-class.js';
import type { Shape } from '../../kernels/spec.js';
import type { Sample } from '../schema/calibration.js';

/** A case that was left out, and the half-width that predicting it asked for. */
export interface LeftOut {
  readonly what: string;
  /** Log units. */
  readonly halfWidth: number;
  /** How it enters the width: the widest of these counts, it is added, or it stands instead of those before it. */
  readonly enters: 'widest' | 'added' | 'instead';
}

/** Takes the parts of a half-width as they are found; `widest` unless said. */
export type Because = (what: string, halfWidth: number, enters?: LeftOut['enters']) => void;

/** Collects them. */
export function leftOutOf(price: (because: Because) => void): LeftOut[] {
  const list: LeftOut[] = [];
  price((what, halfWidth, enters = 'widest') => list.push({ what, halfWidth, enters }));
  return list;
}

/** The half-width that they come to, log units. */
export function widthOf(list: readonly LeftOut[]): number {
  let [widest, added] = [0, 0];
  for (const { halfWidth, enters } of list) {
    if (enters === 'added') added += halfWidth;
    else if (enters === 'widest') widest = Math.max(widest, halfWidth);
    else [widest, added] = [halfWidth, 0];
  }
  return widest + added;
}

/** Where a price comes from. */
export interface CallExplanation {
  /** The law of its class on this device, part by part, seconds. */
  readonly law: {
    /** `longest`: a launch and the longest of the others, rounded where two are alike; `sum`: all of them. */
    readonly kind: 'longest' | 'sum';
    readonly seconds: number;
    readonly parts: readonly { readonly part: string; readonly seconds: number }[];
  };
  /** Measured shapes that it was predicted from; null where none is of such calls. */
  readonly data: {
    readonly points: number;
    readonly nearest: Readonly<Record<string, number>>;
    /** Of the nearest shape, over all its sizes. */
    readonly octavesAway: number;
  } | null;
  readonly leftOut: readonly LeftOut[];
}

/** A kernel's share of how unsure a step is. */
export interface WidthContribution {
  /** `server` is what whole servers differ from their predictions by, beyond their kernels. */
  readonly kernel: KernelShare['kernel'] | 'server';
  readonly by: string;
  readonly evidence: Evidence;
  readonly calls: number;
  readonly seconds: Interval | null;
  /** Of the squared half-width of the step. */
  readonly shareOfWidth: number;
  /** Of its calls the one that is least sure, times the times that it runs; null for what is no kernel. */
  readonly call: (KernelCall & Timed) | null;
  /** Of its exchanges between GPUs the one that is least sure; null for what is none. */
  readonly exchange: (Pick<Collective, 'kind' | 'bytesEach'> & { readonly gpus: number } & Timed) | null;
}

/** What of a step is explained, and how often it runs. */
type Timed = { readonly times: number; readonly seconds: Interval } & CallExplanation;

export interface StepExplanation {
  readonly batch: number;
  readonly contextTokens: number;
  readonly secondsPerStep: Interval;
  readonly evidence: Evidence;
  /** Largest first. */
  readonly contributions: readonly WidthContribution[];
  /** Of the squared half-width, what other kernels carry. */
  readonly shareOfOthers: number;
}

/** Contributions that are told. */
const TOLD = 3;

/** Explains the time of one decode step: the kernels that its width comes from. */
export function explainStep(c: Configuration, pricer: Pricer, batch: number, contextTokens: number): StepExplanation {
  const step = priceStep(c, pricer, batch, contextTokens);
  const half = (i: Interval): number => i.high - i.estimate;
  const known = step.byKernel.filter(({ evidence }) => !isEstimate(evidence));
  // What nobody has measured shares one unknown efficiency: its half-widths are one term.
  const estimates = step.byKernel.filter(({ evidence }) => isEstimate(evidence));
  const together = estimates.reduce((sum, group) => sum + half(group), 0);
  const squared = known.reduce((sum, group) => sum + half(group) ** 2, together ** 2);
  const whole = Math.max(squared, half(step) ** 2, Number.MIN_VALUE);
  const calls = leastSure(c, pricer, batch, contextTokens);
  const exchange = leastSureExchange(c, pricer, schedule(c, batch, contextTokens).collectives);
  const contributions: WidthContribution[] = step.byKernel.map((group) => ({
    kernel: group.kernel,
    by: group.by,
    evidence: group.evidence,
    calls: group.calls,
    seconds: { estimate: group.estimate, low: group.low, high: group.high },
    shareOfWidth: (half(group) * (isEstimate(group.evidence) ? together : half(group))) / whole,
    call: calls(group) ?? null,
    exchange: group.kernel === 'collective' ? exchange : null,
  }));
  // The widths of whole servers are no narrower than those of published ones that were left out.
  if (whole > 1.001 * squared)
    contributions.push({
      kernel: 'server',
      by: pricer.source,
      evidence: step.evidence,
      calls: 1,
      seconds: null,
      shareOfWidth: 1 - squared / whole,
      call: null,
      exchange: null,
    });
  contributions.sort((a, b) => b.shareOfWidth - a.shareOfWidth);
  return {
    batch,
    contextTokens,
    secondsPerStep: { estimate: step.estimate, low: step.low, high: step.high },
    evidence: step.evidence,
    contributions: contributions.slice(0, TOLD),
    shareOfOthers: contributions.slice(TOLD).reduce((sum, { shareOfWidth }) => sum + shareOfWidth, 0),
  };
}

/** The call of each kernel, by the same hands, that makes its time least sure. */
function leastSure(
  c: Configuration,
  pricer: Pricer,
  batch: number,
  contextTokens: number,
): (group: KernelShare) => WidthContribution['call'] | undefined {
  const found = new Map<string, { call: KernelCall; times: number; seconds: Interval; width: number }>();
  forEachOp(c, schedule(c, batch, contextTokens), ({ kernel, variant, shape }, times) => {
    const call = { kernel, variant, shape };
    const { estimate, low, high, by } = pricer.price(call);
    const key = `${kernel} ${by}`;
    const width = times * (high - estimate);
    if (width >= (found.get(key)?.width ?? 0)) found.set(key, { call, times, seconds: { estimate, low, high }, width });
  });
  return ({ kernel, by }) => {
    const one = found.get(`${kernel} ${by}`);
    const explained = one && pricer.explain?.(one.call);
    return one && explained && { ...one.call, times: one.times, seconds: one.seconds, ...explained };
  };
}

function leastSureExchange(
  { gpus }: Configuration,
  pricer: Pricer,
  collectives: readonly Collective[],
): WidthContribution['exchange'] {
  let widest = -1;
  let found: WidthContribution['exchange'] = null;
  for (const { kind, bytesEach, calls: times } of collectives) {
    const price = pricer.collective(kind, bytesEach, gpus);
    const explained = price && pricer.explainCollective?.(kind, bytesEach, gpus);
    if (!explained || times * (price.high - price.estimate) <= widest) continue;
    const { estimate, low, high } = price;
    widest = times * (high - estimate);
    found = { kind, bytesEach, gpus, times, seconds: { estimate, low, high }, ...explained };
  }
  return found;
}

/** The parts of a law for some work. */
export function lawParts(law: Law, work: OpWork, rates: Rates, inside = false): CallExplanation['law'] {
  const alone = (rest: Partial<OpWork>): number =>
    busySeconds(law, { bytes: 0, operations: 0, ...(work.onLink ? { onLink: true } : {}), ...rest }, rates);
  const parts = [
    { part: 'launch', seconds: inside ? 0 : law.floorSeconds },
    { part: work.onLink ? 'bytes over the link' : 'bytes', seconds: alone({ bytes: work.bytes }) },
    {
      part: 'operations',
      seconds: alone({ operations: work.operations, vectorOperations: work.vectorOperations ?? 0 }),
    },
    { part: 'rows', seconds: alone({ rows: work.rows }) },
    ...(work.walkedBytes === undefined
      ? []
      : [{ part: 'one unit alone', seconds: alone({ walkedBytes: work.walkedBytes }) }]),
  ];
  const seconds = inside ? busySeconds(law, work, rates) : lawSeconds(law, work, rates);
  return { kind: 'longest', seconds, parts: parts.filter((p) => p.seconds > 0) };
}

/** What a fitted predictor knows of a call: its law, and the nearest measured shape. */
export function explainSamples(
  call: KernelCall,
  samples: readonly Sample[],
  model: Pick<Model, 'floorSeconds' | 'bytesPerSecond' | 'operationsPerSecond'>,
): Pick<CallExplanation, 'law' | 'data'> {
  const { kernel, variant, shape } = call;
  const { law, rates } = lawOf(model);
  const points = measuredPoints(kernel, variant, samples).map((p) => p.shape);
  return {
    law: lawParts(law, executedWork(call), rates),
    data: nearestOf(points, shape, KERNELS[kernel].dims),
  };
}

/** The nearest of some shapes, octave by octave over the axes. */
export function nearestOf(points: readonly Shape[], shape: Shape, axes: readonly string[]): CallExplanation['data'] {
  const away = (point: Shape): number =>
    axes.reduce((sum, axis) => sum + Math.abs(coordinate(point[axis]!) - coordinate(shape[axis]!)), 0);
  const [first, ...others] = points;
  if (!first) return null;
  const nearest = others.reduce((best, point) => (away(point) < away(best) ? point : best), first);
  return { points: points.length, nearest, octavesAway: away(nearest) };
}
