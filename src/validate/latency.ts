/**
 * Latency: decoder steps measured and predicted in one process. Several decoders take turns (bench/rounds.ts) with
 * the probe beside each step and control points between them, and times are corrected for drift. In some rounds each
 * operation of the step is timed in a pass of its own, which shows the kernel of an error, and the cost of a step
 * beyond its operations.
 */
import { inTime } from '../bench/in-time.js';
import { sum } from '../numbers/statistics.js';
import { interleave } from '../bench/rounds.js';
import { OUT_OF_TIME, type Budget } from '../io/budget.js';
import { priceStep, type Pricer, type StepPrice } from '../cost/latency.js';
import type { Evidence, Interval } from '../cost/evidence.js';
import { totalBytes, memoryModel } from '../cost/memory.js';
import type { GpuDecoder } from '../decoder/gpu/decoder.js';
import type { Device } from '../gpu/index.js';
import { forEachOp } from '../schedule/expand.js';
import { schedule } from '../schedule/schedule.js';
import type { KernelCall, KernelName } from '../../kernels/registry.js';
import { shapeKey, type Calibrated } from './calibrated.js';
import type { Compared } from './statistics.js';
import { openMade, stepOfAll, type CheckRules, type DecoderCase, type NotRun } from './decoding.js';
import {
  driftOf,
  exponentOf,
  typical,
  type DriftWatch,
  type KernelDrift,
  type Timed,
  type Weighed,
} from './controls.js';

/** All calls of one kernel in a step. */
interface KernelRow extends Compared {
  readonly kernel: KernelName;
  readonly calls: number;
}

/**
 * A measured time beside its prediction: the typical one of the rounds, corrected for drift, the probe's
 * (schema/drift.ts) and that of its kernels.
 */
export interface MeasuredRow extends Compared {
  readonly id: string;
  /** Raw time. */
  readonly rawSeconds: readonly number[];
  /** Time of the probe over its reference, beside each of them. */
  readonly drift: readonly number[];
  /** Drift of its kernels beyond the probe's (controls.ts), by which the typical time is divided. */
  readonly kernelDrift: number;
  readonly evidence: Evidence;
  /** Share of the estimate that is not priced by measured kernels. */
  readonly rooflineShare: number;
  readonly octavesOutside: number;
}

export interface StepRow extends MeasuredRow {
  readonly batch: number;
  readonly contextTokens: number;
  /**
   * Sum of the operations' own times: each in a pass of its own (alone in a submission where the device has no
   * timestamps).
   */
  readonly operationsSeconds: number;
  readonly kernels: readonly KernelRow[];
}

export interface StepsReport {
  readonly steps: readonly StepRow[];
  readonly notRun: readonly NotRun[];
  /** Distinct calls of the steps, and how many of them the calibration has not measured. */
  readonly shapes: { readonly all: number; readonly unmeasured: number };
}

export interface StepRules extends CheckRules {
  readonly budget: Budget;
  readonly calibrated: Calibrated;
  readonly watch: DriftWatch;
  /** Decoders that are open together take at most this. */
  readonly openBytes: number;
  /** Rounds of a step, or of a prompt, at most. */
  readonly mostRounds?: number;
}

const LEAST_ROUNDS = 3;
/** Lengths grow by one a round, and stay inside the page that the context ends. */
const MOST_ROUNDS = 28;
/** Operations take as long as the step once more, and are measured in one round of these. */
const ROUNDS_PER_OPERATIONS = 3;
const PAGE_TOKENS = 32;
/** A round takes about as long as so many steps: its operations, the probe and control points are part of it. */
const ROUND_STEPS = 3;
/** No decoder of a group is opened after this share of its time, and what control points take of the rest. */
const OPENING_SHARE = 0.6;
export const CONTROLS_OPEN_SHARE = 0.3;
/** Kind of a piece of the budget. */
export const OPENED = 'decoder opened';
/** Time of control points after each step or prompt, as a share of its own. */
export const CONTROLS_SHARE = 0.5;
/** A decoder's clock leaves the submission out where the device has a clock; so does the prediction then. */
export const pricerFor = (device: Pick<Device, 'clock'>, pricer: Pricer): Pricer =>
  device.clock !== 'wall'
    ? { ...pricer, stepOverhead: { estimate: 0, low: 0, high: 0, evidence: 'measured', by: 'lla-sim' } }
    : pricer;

/** Times of a step or a prompt beside its price. @param calls of it, each with its predicted time */
export function besidePrice(
  times: readonly Timed[],
  calls: readonly Weighed[],
  price: StepPrice,
  drift: KernelDrift,
  exponent: Calibrated['driftExponent'],
): Omit<MeasuredRow, 'id'> {
  const { estimate, low, high, evidence, evidenceShare, octavesOutside } = price;
  const kernelDrift = driftOf(calls, drift);
  return {
    kernelDrift,
    rawSeconds: times.map((t) => t.seconds),
    drift: times.map((t) => t.drift),
    measuredSeconds: typical(times, exponentOf(calls, exponent)) / kernelDrift,
    predicted: { estimate, low, high },
    evidence,
    rooflineShare: evidenceShare.roofline,
    octavesOutside,
  };
}

/** All calls that `forEach` visits, with their predicted times. */
export function weighed(
  pricer: Pricer,
  forEach: (visit: (call: KernelCall, times: number) => void) => void,
): Weighed[] {
  const calls: Weighed[] = [];
  forEach((call, times) => calls.push({ call, seconds: times * pricer.price(call).estimate }));
  return calls;
}

export const callsOfStep = ({ c, batch, contextTokens }: DecoderCase, pricer: Pricer): Weighed[] =>
  weighed(pricer, (visit) => forEachOp(c, schedule(c, batch, contextTokens), visit));

/** Cases in groups that are open together; neighbours stay neighbours. */
export function groupsOf(cases: readonly DecoderCase[], openBytes: number): DecoderCase[][] {
  const groups: DecoderCase[][] = [];
  let bytes = 0;
  for (const one of cases) {
    const own = totalBytes(memoryModel(one.c, one.contextTokens, PAGE_TOKENS), one.batch);
    if (groups.length === 0 || bytes + own > openBytes) {
      groups.push([]);
      bytes = 0;
    }
    (groups.at(-1) as DecoderCase[]).push(one);
    bytes += own;
  }
  return groups;
}

interface Round {
  readonly step: Timed;
  /** By operation, in order; null in rounds that leave them out. */
  readonly operations: readonly Timed[] | null;
}

interface Opened {
  readonly of: DecoderCase;
  readonly decoder: GpuDecoder;
  readonly rounds: Round[];
}

interface MeasuredStep extends Pick<Opened, 'of' | 'rounds'> {
  readonly operations: readonly KernelCall[];
}

/**
 * Measures and predicts every case that the decoder executes: all sequences have as many tokens, a multiple of 32 of at
 * least 64.
 * @throws GpuError for any failure but an operation without a kernel
 */
export async function checkSteps(
  device: Device,
  cases: readonly DecoderCase[],
  rules: StepRules,
): Promise<StepsReport> {
  const { budget, calibrated, watch } = rules;
  const measured: MeasuredStep[] = [];
  const notRun: NotRun[] = [];
  // What had no place in its group's time has one where others took less than theirs.
  let waiting = cases;
  for (let sofar = -1; waiting.length > 0 && measured.length > sofar && !rules.stopped?.();) {
    sofar = measured.length;
    const late: DecoderCase[] = [];
    const groups = groupsOf(waiting, rules.openBytes);
    for (const [index, group] of groups.entries()) {
      const part = budget.part(Math.max(0, budget.left) / (groups.length - index));
      const done = measured.length + notRun.length;
      const { steps, unopened } = await measureGroup(device, group, part, {
        ...rules,
        onCase: (own, _, id) => rules.onCase?.(done + own, cases.length, id),
      });
      measured.push(...steps);
      for (const { one, reason } of unopened)
        if (reason === OUT_OF_TIME) late.push(one);
        else notRun.push({ id: one.id, reason });
      if (rules.stopped?.()) break;
    }
    waiting = late;
  }
  for (const { id, batch, contextTokens } of waiting)
    notRun.push({ id: `${id}, batch ${batch}, ${contextTokens} tokens`, reason: OUT_OF_TIME });
  const drift = watch.look();
  const shapes = new Map(
    measured.flatMap(({ operations }) => operations.map((op) => [shapeKey(op), calibrated.isMeasured(op)] as const)),
  );
  return {
    steps: measured.map((step) => rowOf(device, step, calibrated, drift)),
    notRun,
    shapes: { all: shapes.size, unmeasured: [...shapes.values()].filter((known) => !known).length },
  };
}

/** Opens decoders of a group as long as there is time to measure them, and measures them in turn. */
async function measureGroup(
  device: Device,
  group: readonly DecoderCase[],
  part: Budget,
  rules: StepRules,
): Promise<{ steps: MeasuredStep[]; unopened: { readonly one: DecoderCase; readonly reason: string }[] }> {
  const opened: Opened[] = [];
  let roundSeconds = 0;
  try {
    const { notRun: unopened } = await inTime(
      group,
      {
        kinds: [],
        fits: () =>
          part.spent <= OPENING_SHARE * part.seconds &&
          part.expected(OPENED) + LEAST_ROUNDS * roundSeconds <= part.left,
        stopped: rules.stopped,
        onCase: ({ id }, done, total) => rules.onCase?.(done, total, id),
      },
      async (of) => {
        const decoder = await part.piece(OPENED, () => openFilled(device, of, rules.seed));
        opened.push({ of, decoder, rounds: [] });
        const began = part.now();
        await stepOfAll(decoder);
        roundSeconds += ROUND_STEPS * (part.now() - began);
      },
    );
    await rules.watch.renew(part.part(CONTROLS_OPEN_SHARE * part.left));
    await measure(device, opened, rules, Math.max(0, part.left));
    const steps = opened.map(({ decoder, ...own }) => ({ ...own, operations: decoder.operations.map(({ op }) => op) }));
    return { steps, unopened };
  } finally {
    for (const { decoder } of opened) decoder.close();
  }
}

/** A decoder with a fabricated cache whose pipelines are compiled. */
async function openFilled(device: Device, { c, batch, contextTokens }: DecoderCase, seed: number): Promise<GpuDecoder> {
  const decoder = await openMade(device, c, seed, { batch, contextTokens, pageTokens: PAGE_TOKENS });
  try {
    await decoder.fillCache(contextTokens - MOST_ROUNDS - 2);
    await stepOfAll(decoder);
    return decoder;
  } catch (error) {
    decoder.close();
    throw error;
  }
}

/** Adds rounds to each. @param seconds for all of them */
async function measure(
  device: Device,
  opened: readonly Opened[],
  { watch, calibrated, budget, seed, stopped, mostRounds = MOST_ROUNDS }: StepRules,
  seconds: number,
): Promise<void> {
  const { submitSeconds } = calibrated.calibration.overheads;
  const measures = opened.map(({ decoder, rounds }) => async (): Promise<number> => {
    const step = await watch.beside(async () => (await stepOfAll(decoder)).seconds);
    const isTimed = rounds.length % ROUNDS_PER_OPERATIONS === 0;
    rounds.push({ step, operations: isTimed ? await timeOperations(device, decoder, watch, submitSeconds) : null });
    await watch.turn(CONTROLS_SHARE * step.seconds);
    return step.seconds;
  });
  if (measures.length === 0) return;
  await interleave(measures, {
    ...{ seconds, seed, clockNow: budget.now, leastRounds: LEAST_ROUNDS },
    mostRounds: Math.min(mostRounds, MOST_ROUNDS),
    settled: () => stopped?.() ?? false,
  });
}

/** Each operation of the last step. */
async function timeOperations(
  device: Device,
  { operations }: GpuDecoder,
  watch: DriftWatch,
  submitSeconds: number,
): Promise<Timed[]> {
  const before = await watch.run();
  const seconds = device.hasTimestamps ? await device.runEach(operations.map(({ steps }) => steps)) : [];
  if (!device.hasTimestamps)
    for (const { steps } of operations) seconds.push((await device.run(steps)).wallSeconds - submitSeconds);
  const drift = watch.between(before, await watch.run());
  return seconds.map((each) => ({ seconds: Math.max(1e-9, each), drift }));
}

/** Where a part of a kernel's calls is priced by roofline, both parts are off by the most at once. */
function predictedOf({ byKernel }: StepPrice, kernel: KernelName): Interval {
  const own = byKernel.filter((k) => k.kernel === kernel);
  const total = (end: keyof Interval): number => sum(own.map((part) => part[end]));
  return { estimate: total('estimate'), low: total('low'), high: total('high') };
}

function rowOf(
  device: Device,
  { of: { id, c, batch, contextTokens }, operations, rounds }: MeasuredStep,
  { pricer, driftExponent }: Calibrated,
  drift: KernelDrift,
): StepRow {
  const price = priceStep(c, pricerFor(device, pricer), batch, contextTokens);
  const steps = rounds.map(({ step }) => step);
  const timed = rounds.flatMap((r) => (r.operations ? [r.operations] : []));
  const calls = operations.map((op) => ({ call: op, seconds: pricer.price(op).estimate }));
  const times = operations.map((op, i) => {
    const own = timed.map((round) => round[i] as Timed);
    return { kernel: op.kernel, seconds: typical(own, driftExponent(op)) / drift(op) };
  });
  const rows = [...new Set(times.map(({ kernel }) => kernel))].map((kernel): KernelRow => {
    const own = times.filter((time) => time.kernel === kernel).map(({ seconds }) => seconds);
    return { kernel, calls: own.length, measuredSeconds: sum(own), predicted: predictedOf(price, kernel) };
  });
  return {
    id,
    batch,
    contextTokens,
    ...besidePrice(steps, calls, price, drift, driftExponent),
    operationsSeconds: sum(rows.map((k) => k.measuredSeconds)),
    kernels: rows,
  };
}
