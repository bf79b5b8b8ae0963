/**
 * Time of a decode step, or of a prompt's prefill: the schedule, priced operation by operation, with one interval for
 * the whole.
 */
import { forEachOp, schedule, type Collective, type CollectiveKind, type Configuration } from '../schedule/schedule.js';
import { forEachPrefillCall, type PromptPlan } from '../schedule/prefill-calls.js';
import type { KernelCall, KernelName } from '../kernels/registry.js';
import { weaker, type Evidence, type Interval, type Price } from './evidence.js';

/** What prices kernel calls on one device. */
export interface Pricer {
  price(call: KernelCall): Price;
  /** Submitting a step's commands and waiting for them, once a step; `roofline` where it is an assumption. */
  readonly stepOverhead: Interval & { readonly evidence: Evidence };
  /**
   * Seconds of one exchange between `gpus`, of which each holds `bytes` afterwards, or null where the link is unknown.
   */
  collective(kind: CollectiveKind, bytes: number, gpus: number): Interval | null;
  /** A name of what prices: a calibration file, or `datasheet`. */
  readonly source: string;
}

export interface KernelShare extends Interval {
  readonly kernel: KernelName | 'collective' | 'step-overhead';
  readonly calls: number;
  readonly evidence: Evidence;
}

/** Price of everything that a schedule lists. */
export interface SchedulePrice extends Interval {
  /** The weakest evidence among the operations that matter (at least 0.1 % of the high end together). */
  readonly evidence: Evidence;
  /** Share of the estimate that each kind of evidence carries. */
  readonly evidenceShare: Readonly<Record<Evidence, number>>;
  readonly byKernel: readonly KernelShare[];
  /** Largest distance outside the measured range among the operations, in octaves. */
  readonly octavesOutside: number;
  /**
   * False when several GPUs are used and the link between them has no figure: communication is then not in the price.
   */
  readonly communicationPriced: boolean;
}

/** Price of one decode step. */
export type StepPrice = SchedulePrice;

/** Kernels carrying less than this share of the high end do not set the evidence. */
const NEGLIGIBLE = 1e-3;

interface Group {
  kernel: KernelShare['kernel'];
  calls: number;
  estimate: number;
  below: number;
  above: number;
  evidence: Evidence;
}

/** Sums calls of each kernel; a kernel's errors repeat with the same sign, so its half-widths add linearly. */
class Groups {
  readonly list: Group[] = [];
  private readonly measured = new Map<Group['kernel'], Group>();
  private readonly roofline = new Map<Group['kernel'], Group>();

  add(kernel: Group['kernel'], price: Interval & { evidence: Evidence }, calls: number): void {
    const index = price.evidence === 'roofline' ? this.roofline : this.measured;
    let group = index.get(kernel);
    if (!group) {
      group = { kernel, calls: 0, estimate: 0, below: 0, above: 0, evidence: price.evidence };
      index.set(kernel, group);
      this.list.push(group);
    }
    group.calls += calls;
    group.estimate += calls * price.estimate;
    group.below += calls * (price.estimate - price.low);
    group.above += calls * (price.high - price.estimate);
    group.evidence = weaker(group.evidence, price.evidence);
  }
}

/**
 * Prices one decode step.
 *
 * Kernels measured apart err independently: their summed half-widths combine in quadrature. Everything priced by
 * roofline shares one unknown efficiency and adds linearly, as one more term.
 * @returns seconds a step
 */
export function priceStep(c: Configuration, pricer: Pricer, batch: number, context: number): StepPrice {
  const s = schedule(c, batch, context);
  const sum = new Sum(pricer);
  forEachOp(c, s, (op, calls) => sum.add(op, calls));
  return sum.finish(s.collectives, c.gpus, 1);
}

/**
 * Prices the prefill of one prompt, from its embedding to its first token, as `priceStep` prices a step.
 * @returns seconds a prompt
 */
export function pricePrompt(c: Configuration, pricer: Pricer, plan: PromptPlan): SchedulePrice {
  const sum = new Sum(pricer);
  const { collectives, submissions } = forEachPrefillCall(c, plan, (call, times) => sum.add(call, times));
  return sum.finish(collectives, c.gpus, submissions);
}

/** Sums the prices of a schedule's calls. */
class Sum {
  private readonly groups = new Groups();
  private octavesOutside = 0;

  constructor(private readonly pricer: Pricer) {}

  add(call: KernelCall, times: number): void {
    const price = this.pricer.price(call);
    if (price.octavesOutside > this.octavesOutside) this.octavesOutside = price.octavesOutside;
    this.groups.add(call.kernel, price, times);
  }

  /** @param submissions that wait for each other */
  finish(collectives: readonly Collective[], gpus: number, submissions: number): SchedulePrice {
    const { pricer, groups, octavesOutside } = this;
    let communicationPriced = true;
    for (const { kind, bytesEach, calls } of collectives) {
      const price = pricer.collective(kind, bytesEach, gpus);
      if (price) groups.add('collective', { ...price, evidence: 'roofline' }, calls);
      else communicationPriced = false;
    }
    groups.add('step-overhead', pricer.stepOverhead, submissions);
    return { ...combine(groups.list), octavesOutside, communicationPriced };
  }
}

function combine(groups: readonly Group[]): Omit<SchedulePrice, 'octavesOutside' | 'communicationPriced'> {
  let estimate = 0;
  let below2 = 0;
  let above2 = 0;
  let rooflineBelow = 0;
  let rooflineAbove = 0;
  const shares: Record<Evidence, number> = { measured: 0, interpolated: 0, extrapolated: 0, roofline: 0 };
  for (const g of groups) {
    estimate += g.estimate;
    shares[g.evidence] += g.estimate;
    if (g.evidence === 'roofline') {
      rooflineBelow += g.below;
      rooflineAbove += g.above;
    } else {
      below2 += g.below ** 2;
      above2 += g.above ** 2;
    }
  }
  const low = Math.max(estimate - Math.sqrt(below2 + rooflineBelow ** 2), estimate * 1e-6);
  const high = estimate + Math.sqrt(above2 + rooflineAbove ** 2);
  const weight: Record<Evidence, number> = { measured: 0, interpolated: 0, extrapolated: 0, roofline: 0 };
  for (const g of groups) weight[g.evidence] += g.estimate + g.above;
  let evidence: Evidence = 'measured';
  for (const e of Object.keys(weight) as Evidence[]) if (weight[e] > NEGLIGIBLE * high) evidence = weaker(evidence, e);
  for (const e of Object.keys(shares) as Evidence[]) shares[e] /= estimate;
  const byKernel = groups.map((g): KernelShare => ({
    kernel: g.kernel,
    calls: g.calls,
    estimate: g.estimate,
    low: g.estimate - g.below,
    high: g.estimate + g.above,
    evidence: g.evidence,
  }));
  return { estimate, low, high, evidence, evidenceShare: shares, byKernel };
}
