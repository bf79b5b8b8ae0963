/**
 * Time of a decode step, or of a prompt's prefill: the schedule, priced operation by operation, with one interval for
 * the whole.
 */
import { CONSTANTS } from './constants.js';
import { PEAK_MARGIN } from './law.js';
import { forEachOp } from '../schedule/expand.js';
import { schedule, type Collective, type CollectiveKind, type Configuration } from '../schedule/schedule.js';
import { asServersRead, forEachPrefillCall, type PrefillFrame, type PromptPlan } from '../schedule/prefill/calls.js';
import type { KernelCall, KernelName } from '../../kernels/registry.js';
import type { CallExplanation } from './explain.js';
import {
  EVIDENCE,
  isEstimate,
  type Evidence,
  type Floor,
  type Interval,
  type Price,
  type ServerSpread,
} from './evidence.js';

/** What prices kernel calls on one device. */
export interface Pricer {
  price(call: KernelCall): Price;
  /** Why that price (cost/explain.ts). */
  explain?(call: KernelCall): CallExplanation;
  /** The same of an exchange; null where the link is unknown. */
  explainCollective?(kind: CollectiveKind, bytes: number, gpus: number): CallExplanation | null;
  /** Submitting a step's commands and waiting for them, once a step; `roofline` where it is an assumption. */
  readonly stepOverhead: StepOverhead;
  /** What a server does for each sequence of a step; absent where kernels are priced without a server. */
  readonly sequenceOverhead?: StepOverhead;
  /** Between a user and the server's scheduler, seconds a request; absent as above. */
  readonly requestOverhead?: Interval;
  /** Units of the GPU, where a server's kernels give each sequence and KV head a block (cost/unequal.ts). */
  readonly units?: number | null;
  /**
   * Times by which decode attention of so many query heads a KV head takes longer beside a prompt
   * (cost/beside-prompts.ts); absent where prompts have a kernel of their own.
   */
  readonly besidePrompts?: (group: number, sequences: number, headBytes: number) => number;
  /** How far whole servers were from their predictions: no interval of a step or a prompt is narrower. */
  readonly spread?: ServerSpread | null;
  /**
   * Seconds of one exchange between `gpus`, of which each holds `bytes` afterwards, or null where the link is unknown.
   */
  collective(kind: CollectiveKind, bytes: number, gpus: number): Price | null;
  /** A name of what prices: a calibration file, or `datasheet`. */
  readonly source: string;
  /** What adds the program around the kernels; without it kernels and `stepOverhead` are all. */
  readonly runtime?: RuntimePrices;
}

/** Prices of whole steps and prompts under a server whose host does not hide behind the GPU. */
export interface RuntimePrices {
  step(c: Configuration, kernels: Pricer, batch: number, context: number): StepPrice;
  prompt(c: Configuration, kernels: Pricer, plan: PromptPlan): SchedulePrice;
  readonly host: Host;
  /** Half-width of whole steps that were held out, log seconds, and which those are. */
  readonly spread: number;
  readonly heldOut: string;
}

/** How fast a server's host launches kernels. */
export interface Host {
  readonly secondsPerLaunch: Interval;
  /** The row of the ledger that tells it; null: none does, and it is that of other hosts unless `step` tells it. */
  readonly row: string | null;
  /** The user's own step that tells it (`--measured-step`). */
  readonly step: string | null;
}

/**
 * Prices under a server that schedules while the GPU works. The slow end keeps the server's time: where a batch
 * changes, or steps are short, the GPU may wait for it.
 */
export const overlapped = (pricer: Pricer): Pricer => ({
  ...pricer,
  stepOverhead: { ...pricer.stepOverhead, estimate: 0, low: 0 },
  // Books of sequences are kept meanwhile.
  ...(pricer.sequenceOverhead
    ? { sequenceOverhead: { ...pricer.sequenceOverhead, estimate: 0, low: 0, high: 0 } }
    : {}),
});

/** What a step takes beside its kernels. */
type StepOverhead = Omit<Price, 'octavesOutside'>;

export interface KernelShare extends Interval {
  readonly kernel: KernelName | 'collective' | 'step-overhead';
  readonly calls: number;
  readonly evidence: Evidence;
  readonly by: string;
}

/** Price of everything that a schedule lists. */
export interface SchedulePrice extends Interval {
  /** The surest word that covers at least 90 % of the estimate, with surer ones. */
  readonly evidence: Evidence;
  /** Share of the estimate that each kind of evidence carries. */
  readonly evidenceShare: Readonly<Record<Evidence, number>>;
  /** Share of the estimate by whose kernels it is priced. */
  readonly pricedBy: Readonly<Record<string, number>>;
  /** The part of it that nobody has measured. */
  readonly unmeasured: Interval;
  /** What no kernels could do better, where the device's rates are known. */
  readonly floor: Floor | null;
  readonly byKernel: readonly KernelShare[];
  /** Under a runtime: the whole, were its kernels all that is unsure. */
  readonly ofKernels?: Interval;
  /** Largest distance outside the measured range among the operations, in octaves. */
  readonly octavesOutside: number;
  /**
   * False when several GPUs are used and the link between them has no figure: communication is then not in the price.
   */
  readonly communicationPriced: boolean;
}

/** Price of one decode step. */
export type StepPrice = SchedulePrice;

/** Operations of weaker evidence that carry less than this share of the estimate do not set the evidence. */
const NEGLIGIBLE = CONSTANTS.negligible.value;

interface Group {
  kernel: KernelShare['kernel'];
  calls: number;
  estimate: number;
  below: number;
  above: number;
  /** The weakest evidence, as its place in EVIDENCE. */
  level: number;
  by: string;
}

/** Sums calls of each kernel; a kernel's errors repeat with the same sign, so its half-widths add linearly. */
class Groups {
  readonly list: Group[] = [];
  /** Seconds of the estimate by evidence, in the order of EVIDENCE. */
  readonly shares = new Float64Array(EVIDENCE.length);

  add(kernel: Group['kernel'], price: StepOverhead, calls: number): void {
    const group = this.groupOf(kernel, price);
    group.calls += calls;
    group.estimate += calls * price.estimate;
    group.below += calls * (price.estimate - price.low);
    group.above += calls * (price.high - price.estimate);
    const level = EVIDENCE.indexOf(price.evidence);
    this.shares[level]! += calls * price.estimate;
    if (level > group.level) group.level = level;
  }

  /** The group of this kernel by the same hands. */
  private groupOf(kernel: Group['kernel'], { by }: StepOverhead): Group {
    for (const group of this.list) if (group.kernel === kernel && group.by === by) return group;
    const group: Group = { kernel, calls: 0, estimate: 0, below: 0, above: 0, level: 0, by };
    this.list.push(group);
    return group;
  }
}

/**
 * Prices one decode step.
 *
 * Kernels measured apart err independently: their summed half-widths combine in quadrature. What nobody has measured
 * shares one unknown efficiency and adds linearly, as one more term.
 * @returns seconds a step
 */
export function priceStep(c: Configuration, pricer: Pricer, batch: number, context: number): StepPrice {
  if (pricer.runtime) return pricer.runtime.step(c, pricer, batch, context);
  return priceCalls(pricer, c.gpus, (add) => {
    const s = schedule(c, batch, context);
    forEachOp(c, s, add);
    return { collectives: s.collectives, submissions: 1, sequences: batch };
  });
}

/**
 * Prices the prefill of one prompt, from its embedding to its first token, as `priceStep` prices a step.
 * @returns seconds a prompt
 */
export const pricePrompt = (c: Configuration, pricer: Pricer, plan: PromptPlan): SchedulePrice =>
  pricer.runtime
    ? pricer.runtime.prompt(c, pricer, plan)
    : priceCalls(pricer, c.gpus, (add) => {
        const read = isServer(pricer) ? asServersRead(c, plan.promptTokens) : <C>(call: C): C => call;
        return forEachPrefillCall(c, plan, (call, times) => add(read(call), times));
      });

/**
 * Prices calls as `priceStep` prices a step.
 * @param list adds every call with the times that it runs; returns exchanges between GPUs, submissions that wait
 *   for each other, and sequences that a server keeps books of
 */
export function priceCalls(
  pricer: Pricer,
  gpus: number,
  list: (add: (call: KernelCall, times: number) => void) => PrefillFrame & { readonly sequences?: number },
): SchedulePrice {
  const sum = new Sum(pricer);
  const { collectives, submissions, sequences } = list((call, times) => sum.add(call, times));
  return sum.finish(collectives, gpus, submissions, sequences ?? 0);
}

/** True where a server runs the kernels: one call reads all prompts of an iteration. */
export const isServer = ({ sequenceOverhead }: Pick<Pricer, 'sequenceOverhead'>): boolean =>
  sequenceOverhead !== undefined;

/** Sums the prices of a schedule's calls. */
class Sum {
  private readonly groups = new Groups();
  private octavesOutside = 0;
  private memory = 0;
  private compute = 0;
  private floored = true;

  constructor(private readonly pricer: Pricer) {}

  add(call: KernelCall, times: number): void {
    const price = this.pricer.price(call);
    if (price.octavesOutside > this.octavesOutside) this.octavesOutside = price.octavesOutside;
    if (price.floor) {
      this.memory += times * price.floor.memory;
      this.compute += times * price.floor.compute;
    } else this.floored = false;
    this.groups.add(call.kernel, price, times);
  }

  /** @param submissions that wait for each other @param sequences that the server keeps books of */
  finish(collectives: readonly Collective[], gpus: number, submissions: number, sequences: number): SchedulePrice {
    const { pricer, groups } = this;
    let communicationPriced = true;
    for (const { kind, bytesEach, calls } of collectives) {
      const price = pricer.collective(kind, bytesEach, gpus);
      if (price) groups.add('collective', price, calls);
      else communicationPriced = false;
      if (price) this.octavesOutside = Math.max(this.octavesOutside, price.octavesOutside);
    }
    groups.add('step-overhead', pricer.stepOverhead, submissions);
    if (pricer.sequenceOverhead && sequences > 0) groups.add('step-overhead', pricer.sequenceOverhead, sequences);
    const floor = this.floored ? { memory: this.memory, compute: this.compute } : null;
    const { octavesOutside } = this;
    return combine(groups, { octavesOutside, communicationPriced, floor }, Math.exp(pricer.spread?.step ?? 0));
  }
}

/** Written out field by field: spreads would take as long as the sums. */
function combine(
  { list, shares }: Groups,
  {
    octavesOutside,
    communicationPriced,
    floor,
  }: Pick<SchedulePrice, 'octavesOutside' | 'communicationPriced' | 'floor'>,
  leastFactor: number,
): SchedulePrice {
  let estimate = 0;
  let below2 = 0;
  let above2 = 0;
  const unmeasured = { estimate: 0, below: 0, above: 0 };
  const pricedBy: Record<string, number> = {};
  const byKernel: KernelShare[] = [];
  for (const g of list) {
    estimate += g.estimate;
    pricedBy[g.by] = (pricedBy[g.by] ?? 0) + g.estimate;
    const evidence = EVIDENCE[g.level]!;
    if (isEstimate(evidence)) {
      unmeasured.estimate += g.estimate;
      unmeasured.below += g.below;
      unmeasured.above += g.above;
    } else {
      below2 += g.below ** 2;
      above2 += g.above ** 2;
    }
    byKernel.push({
      kernel: g.kernel,
      calls: g.calls,
      estimate: g.estimate,
      low: g.estimate - g.below,
      high: g.estimate + g.above,
      evidence,
      by: g.by,
    });
  }
  let sum = 0;
  for (let i = 0; i < EVIDENCE.length; i++) sum += shares[i]!;
  const evidenceShare = {
    measured: shares[0]! / sum,
    interpolated: shares[1]! / sum,
    extrapolated: shares[2]! / sum,
    attainable: shares[3]! / sum,
    roofline: shares[4]! / sum,
  };
  for (const by in pricedBy) pricedBy[by]! /= estimate;
  const fastest = Math.max(estimate - Math.sqrt(below2 + unmeasured.below ** 2), estimate * 1e-6);
  return {
    estimate,
    // Whole servers may be slower than their kernels by any factor, and no faster than the device.
    low: Math.max(
      Math.min(fastest, Math.max(estimate / leastFactor, Math.min(estimate, floor?.memory ?? 0))),
      Math.min(estimate, (floor?.compute ?? 0) / PEAK_MARGIN),
    ),
    high: Math.max(estimate + Math.sqrt(above2 + unmeasured.above ** 2), estimate * leastFactor),
    evidence: wordFor(evidenceShare),
    evidenceShare,
    pricedBy,
    unmeasured: {
      estimate: unmeasured.estimate,
      low: unmeasured.estimate - unmeasured.below,
      high: unmeasured.estimate + unmeasured.above,
    },
    byKernel,
    octavesOutside,
    communicationPriced,
    floor,
  };
}

/** The surest word such that operations of weaker evidence are negligible together. */
export function wordFor(share: Readonly<Record<Evidence, number>>): Evidence {
  let weakerShare = 0;
  for (let i = EVIDENCE.length - 1; i >= 0; i--) {
    const word = EVIDENCE[i]!;
    weakerShare += share[word];
    if (weakerShare > NEGLIGIBLE) return word;
  }
  return 'measured';
}
