/** Why a step's time is what it is and as sure as it is: laws, data near it, what was left out to find its width. */
import { executedWork, lawOf, measuredPoints, type Model } from './predictor.js';
import { EVIDENCE, isEstimate, type Evidence, type Interval, type Price, type ServerSpread } from './evidence.js';
import { priceStep, type Host, type KernelShare, type Pricer, type StepPrice } from './latency.js';
import { busySeconds, lawSeconds, type Law } from './law.js';
import { forEachOp } from '../schedule/expand.js';
import { schedule, type Collective, type Configuration } from '../schedule/schedule.js';
import { KERNELS, type KernelCall } from '../../kernels/registry.js';
import type { OpWork, Rates } from '../../kernels/op-class.js';
import type { Shape } from '../../kernels/spec.js';
import type { Sample } from '../schema/calibration.js';

/** A part of a half-width, and the cases that were left out and predicted from the rest to find it. */
export interface LeftOut {
  /** A clause: why the call is not sure, and within which factor 90 % of what was left out came. */
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
    /** `longest`: a floor and about the longest of the others (fourth powers are added); `sum`: all of them. */
    readonly kind: 'longest' | 'sum';
    readonly seconds: number;
    readonly parts: readonly { readonly part: string; readonly seconds: number }[];
    /** It prices alone: the L2 may have held what the measured calls read again, as they were faster. */
    readonly warm?: true;
    /** What it was fitted to, where that is not `data`. */
    readonly of?: string;
  };
  /** Measured shapes that it was predicted from; null where none is of such calls. */
  readonly data: {
    /** Who measured them; absent where this program did. */
    readonly source?: string;
    /** Those that a table keeps; others follow from them. */
    readonly points: number;
    /** The call in the data's sizes: heads that no table has are sequences of fewer. */
    readonly asked: Readonly<Record<string, number>>;
    readonly nearest: Readonly<Record<string, number>>;
    /** Between both, added over all sizes; a size of 0 counts as 1. */
    readonly octavesAway: number;
  } | null;
  readonly leftOut: readonly LeftOut[];
  /** Where what was left out allows more than memory does, whose rate then is the fast end. */
  readonly fastEnd?: { readonly memorySeconds: number; readonly cachedSeconds: number };
  /** What a server's own kernel does to that price, and the seconds before; how sure that is, `leftOut` may count. */
  readonly rule?: { readonly what: string; readonly from: number; readonly counted?: true };
}

/** A kernel's share of how unsure a step is. */
export interface WidthContribution {
  /** `server` is what whole servers differ from their predictions by, beyond their kernels. */
  readonly kernel: KernelShare['kernel'] | 'server';
  readonly by: string;
  readonly evidence: Evidence;
  readonly calls: number;
  readonly seconds: Interval | null;
  /** Of the squared distance from the step's time to its slow end, before `floor`. */
  readonly shareOfWidth: number;
  /** Of its calls the one that adds most to the width, all its runs together; null for what is no kernel. */
  readonly call: (KernelCall & Timed) | null;
  /** Of its exchanges between GPUs the one that adds most; null for what is none. */
  readonly exchange: (Exchange & Timed) | null;
  /** Of a server's own time: how its host launches; null for what is none, or where only seconds are known. */
  readonly host: Host | null;
  /** Of a whole server: what was left out. */
  readonly leftOut: readonly LeftOut[];
}

/** What of a step is explained, and how often it runs. */
type Timed = { readonly times: number; readonly seconds: Interval; readonly evidence: Evidence } & CallExplanation;
type Exchange = Pick<Collective, 'kind' | 'bytesEach'> & { readonly gpus: number };

export interface StepExplanation {
  readonly batch: number;
  readonly contextTokens: number;
  readonly secondsPerStep: Interval;
  readonly evidence: Evidence;
  /** Kernels of that evidence and of weaker ones, and their share of the step's time. */
  readonly weakest: { readonly kernels: readonly KernelShare['kernel'][]; readonly share: number };
  /** What whole servers were off by, where the step's interval is that and not its kernels': theirs is narrower. */
  readonly floor: { readonly leftOut: readonly LeftOut[]; readonly kernels: Interval } | null;
  /** Largest first. */
  readonly contributions: readonly WidthContribution[];
  /** Distances to the slow end of kernels that nobody measured, added. */
  readonly unmeasuredSeconds: number;
  /** What others carry. */
  readonly shareOfOthers: number;
}

/** Contributions that are told at most, and the share of the width below which one is not. */
const TOLD = 3;
const LEAST_TOLD = 0.02;
/** Ends that differ by less print alike. */
const UNSEEN = 0.005;

/** Explains the time of one decode step: the kernels that its width comes from. */
export function explainStep(c: Configuration, pricer: Pricer, batch: number, contextTokens: number): StepExplanation {
  const step = priceStep(c, pricer, batch, contextTokens);
  const half = (i: Interval): number => i.high - i.estimate;
  const isKernel = ({ kernel }: KernelShare): boolean => kernel !== 'step-overhead';
  // What nobody has measured shares one unknown efficiency: its half-widths are one term.
  const together = step.byKernel.filter((g) => isEstimate(g.evidence)).reduce((sum, g) => sum + half(g), 0);
  const squareOf = (g: KernelShare): number => half(g) * (isEstimate(g.evidence) ? together : half(g));
  const sumOf = (groups: readonly KernelShare[]): number => groups.reduce((sum, g) => sum + squareOf(g), 0);
  // A host that is slower than its GPU hides what kernels take.
  const ofKernels = sumOf(step.byKernel.filter(isKernel));
  const shown = step.ofKernels && ofKernels > 0 ? half(step.ofKernels) ** 2 / ofKernels : 1;
  const own = step.byKernel.map((g) => squareOf(g) * (isKernel(g) ? shown : 1));
  const sumOwn = own.reduce((sum, square) => sum + square, 0);
  const { runtime } = pricer;
  const squared = runtime && sumOwn > 0 ? withoutSpread(step, runtime.spread) ** 2 : sumOwn;
  // Ends of a host and of its kernels add: what that is more than in quadrature is the host's.
  const ofHost = own.reduce((sum, square, i) => sum + (isKernel(step.byKernel[i]!) ? 0 : square), 0);
  const more = ofHost > 0 ? (ofHost + squared - sumOwn) / ofHost : 1;
  const squares = own.map((square, i) => square * (isKernel(step.byKernel[i]!) ? 1 : more));
  const whole = Math.max(squared, runtime ? half(step) ** 2 : 0, Number.MIN_VALUE);
  const calls = mostAddingCalls(c, pricer, batch, contextTokens);
  const exchanges = mostAddingExchanges(c, pricer, batch, contextTokens);
  const contributions: WidthContribution[] = step.byKernel.map((group, i) => ({
    kernel: group.kernel,
    by: group.by,
    evidence: group.evidence,
    calls: group.calls,
    seconds: { estimate: group.estimate, low: group.low, high: group.high },
    shareOfWidth: squares[i]! / whole,
    call: calls(group) ?? null,
    exchange: group.kernel === 'collective' ? exchanges(group) : null,
    host: isKernel(group) ? null : (pricer.runtime?.host ?? null),
    leftOut: [],
  }));
  if (runtime && whole > 1.001 * squared)
    contributions.push({
      kernel: 'server',
      by: pricer.source,
      evidence: step.evidence,
      calls: 1,
      seconds: null,
      shareOfWidth: 1 - squared / whole,
      call: null,
      exchange: null,
      host: null,
      leftOut: leftOutOf((because) => because(runtime.heldOut, runtime.spread)),
    });
  contributions.sort((a, b) => b.shareOfWidth - a.shareOfWidth);
  const told = contributions.slice(0, TOLD).filter(({ shareOfWidth }, i) => i === 0 || shareOfWidth >= LEAST_TOLD);
  const level = EVIDENCE.indexOf(step.evidence);
  const weakest = step.byKernel
    .filter((g) => g.estimate > 0 && EVIDENCE.indexOf(g.evidence) >= level)
    .sort((a, b) => b.estimate - a.estimate);
  return {
    batch,
    contextTokens,
    secondsPerStep: { estimate: step.estimate, low: step.low, high: step.high },
    evidence: step.evidence,
    weakest: {
      kernels: [...new Set(weakest.map((g) => g.kernel))],
      share: EVIDENCE.slice(level).reduce((sum, word) => sum + step.evidenceShare[word], 0),
    },
    floor:
      runtime || !pricer.spread
        ? null
        : floorOf(step, pricer.spread, priceStep(c, { ...pricer, spread: null }, batch, contextTokens)),
    contributions: told,
    unmeasuredSeconds: together,
    shareOfOthers: contributions.slice(told.length).reduce((sum, { shareOfWidth }) => sum + shareOfWidth, 0),
  };
}

/** The distance to the slow end before whole servers are added: their logarithms are, in quadrature. */
const withoutSpread = ({ estimate, high }: Interval, spread: number): number =>
  estimate * Math.expm1(Math.sqrt(Math.max(0, Math.log(high / estimate) ** 2 - spread ** 2)));

/** What whole servers that were left out were off by, where that sets the interval (cost/latency.ts, `combine`). */
function floorOf(
  { estimate, low, high }: StepPrice,
  spread: ServerSpread,
  kernels: StepPrice,
): StepExplanation['floor'] {
  if (kernels.low <= low * (1 + UNSEEN) && kernels.high * (1 + UNSEEN) >= high) return null;
  return {
    leftOut: leftOutOf((because) => because(spread.of ?? 'published steps of servers', spread.step)),
    kernels: { estimate, low: kernels.low, high: kernels.high },
  };
}

/** Of things that run `times` each, the one that adds most to a step's width, by a group. Equal things are one. */
class AddsMost<T extends object> {
  readonly #found = new Map<string, Map<string, { what: T; times: number; price: Price }>>();

  add(group: string, what: T, times: number, price: Price): void {
    const alike = this.#found.get(group) ?? new Map<string, { what: T; times: number; price: Price }>();
    const name = JSON.stringify(what);
    alike.set(name, { what, times: times + (alike.get(name)?.times ?? 0), price });
    this.#found.set(group, alike);
  }

  /** With its explanation; null where there is none. */
  explained(group: string, explain: (what: T) => CallExplanation | null | undefined): (T & Timed) | null {
    const width = ({ times, price }: { times: number; price: Price }): number => times * (price.high - price.estimate);
    const [one] = [...(this.#found.get(group)?.values() ?? [])].sort((a, b) => width(b) - width(a));
    const why = one && explain(one.what);
    if (!why) return null;
    const { estimate, low, high, evidence } = one.price;
    return { ...one.what, times: one.times, seconds: { estimate, low, high }, evidence, ...why };
  }
}

/** The call of each kernel, by the same hands, that adds most to the step's width. */
function mostAddingCalls(
  c: Configuration,
  pricer: Pricer,
  batch: number,
  contextTokens: number,
): (group: KernelShare) => WidthContribution['call'] {
  const calls = new AddsMost<KernelCall>();
  forEachOp(c, schedule(c, batch, contextTokens), ({ kernel, variant, shape }, times) => {
    const call = { kernel, variant, shape };
    const price = pricer.price(call);
    calls.add(`${kernel} ${price.by}`, call, times, price);
  });
  return ({ kernel, by }) => calls.explained(`${kernel} ${by}`, (call) => pricer.explain?.(call));
}

/** The same of exchanges between GPUs. */
function mostAddingExchanges(
  c: Configuration,
  pricer: Pricer,
  batch: number,
  contextTokens: number,
): (group: KernelShare) => WidthContribution['exchange'] {
  const { gpus } = c;
  const exchanges = new AddsMost<Exchange>();
  for (const { kind, bytesEach, calls } of schedule(c, batch, contextTokens).collectives) {
    const price = pricer.collective(kind, bytesEach, gpus);
    if (price) exchanges.add(price.by, { kind, bytesEach, gpus }, calls, price);
  }
  return ({ by }) =>
    exchanges.explained(by, ({ kind, bytesEach }) => pricer.explainCollective?.(kind, bytesEach, gpus));
}

/** The parts of a law for some work. */
export function lawParts(law: Law, work: OpWork, rates: Rates, inside = false): CallExplanation['law'] {
  const alone = (rest: Partial<OpWork>): number =>
    busySeconds(law, { bytes: 0, operations: 0, ...(work.onLink ? { onLink: true } : {}), ...rest }, rates);
  const parts = [
    { part: 'floor', seconds: inside ? 0 : law.floorSeconds },
    { part: work.onLink ? 'bytes over the link' : 'bytes', seconds: alone({ bytes: work.bytes }) },
    {
      part: 'operations',
      seconds: alone({ operations: work.operations, vectorOperations: work.vectorOperations ?? 0 }),
    },
    { part: 'rows', seconds: alone({ rows: work.rows }) },
    ...(work.walkedBytes === undefined
      ? []
      : [{ part: 'bytes that one unit reads alone', seconds: alone({ walkedBytes: work.walkedBytes }) }]),
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
  const data = nearestOf(points, shape, KERNELS[kernel].dims);
  return {
    law: { ...lawParts(law, executedWork(call), rates), ...(data ? {} : { of: 'other kernels of its class' }) },
    data,
  };
}

/** The nearest of some shapes, octave by octave over the axes. */
export function nearestOf(points: readonly Shape[], shape: Shape, axes: readonly string[]): CallExplanation['data'] {
  const octaves = (size: number): number => Math.log2(Math.max(1, size));
  const away = (point: Shape): number =>
    axes.reduce((sum, axis) => sum + Math.abs(octaves(point[axis]!) - octaves(shape[axis]!)), 0);
  const [first, ...others] = points;
  if (!first) return null;
  const nearest = others.reduce((best, point) => (away(point) < away(best) ? point : best), first);
  const asked = Object.fromEntries(axes.map((axis) => [axis, shape[axis]!]));
  return { points: points.length, asked, nearest, octavesAway: away(nearest) };
}
