/** Compares two versions of the kernels, call by call. */
import { OUT_OF_TIME, type Budget } from '../../io/budget.js';
import { deviceOptions, GpuError, planOperation, type BoundStep, type Buffer, type Device } from '../../gpu/index.js';
import { OWN_SOURCES, type SourceSet } from '../../../kernels/source.js';
import { workOf, type KernelCall } from '../../../kernels/registry.js';
import { printable } from '../../errors.js';
import type { Calibration } from '../../schema/calibration.js';
import { inTime } from '../in-time.js';
import { holding, makeOperands } from '../inputs.js';
import { moreOperands, obstacle, toleranceOf, wrongResult } from '../measure.js';
import { interleave, ratioOf, type InterleaveRules } from '../rounds.js';
import { batchTimers, eachOf, type Copies, type Runner, type TimingRules } from '../timing.js';
import { relativeError } from '../verify.js';
import type { Clock } from '../../gpu/platform.js';
import { median } from '../../numbers/statistics.js';
import { ratesOf, type BenchResult, type PairedResult, type SkippedResult } from './report.js';
import { isSettled, verdictOf } from './statistics.js';
import { relate, sameHash } from './versions.js';

/**
 * An interval of fewer rounds is not to be trusted. In simulated heavy noise 24 or 32 are no better. Noise that lasts
 * for several rounds makes intervals too narrow, and the interval accounts for that (statistics.ts, correlationFactor).
 */
export const LEAST_ROUNDS = 16;
const MOST_ROUNDS = 4000;
/** Each look at the interval costs a bootstrap; the next one is due after this factor more rounds. */
const GROWTH = 1.25;
/** A submission's length: far above what submitting costs, and a round of four no longer than most phases of noise. */
const BATCH_SECONDS = { software: 0.008, hardware: 0.005 };

/** What a measurement of calls is told. */
export interface CallRules {
  readonly calls: readonly KernelCall[];
  readonly clock: Clock;
  readonly submitSeconds: number;
  readonly ceilings: Calibration['ceilings'];
  /** For all calls; time that a call leaves goes to the others. */
  readonly budget: Budget;
  readonly seed: number;
  readonly onProgress?: (call: KernelCall, done: number, total: number) => void;
}

export interface CompareOptions extends CallRules {
  readonly before: SourceSet;
  /** This program's kernels unless given. */
  readonly now?: SourceSet;
  /** Fraction, such as 0.05. */
  readonly threshold: number;
  /** Measure calls whose sources are the same, too. */
  readonly all: boolean;
  /** Check all calls, whatever time that takes. */
  readonly checkAll?: boolean;
}

export async function compareVersions(device: Device, options: CompareOptions): Promise<BenchResult[]> {
  const now = options.now ?? OWN_SOURCES;
  const results: (BenchResult | null)[] = options.calls.map((call) => skipped(device, call, options, now));
  const open = options.calls.flatMap((call, i) => (results[i] === null ? [{ call, i }] : []));
  const { budget } = options;
  /** Each of some calls; what does not fit the time is left in this state. */
  const each = async (
    some: typeof open,
    late: SkippedResult['state'],
    rules: Omit<Parameters<typeof inTime<(typeof open)[number], BenchResult | null>>[1], 'refuses'>,
    work: (call: KernelCall, done: number) => Promise<BenchResult | null>,
  ): Promise<void> => {
    const of = { ...rules, refuses: ({ fault }: GpuError) => fault !== 'lost' };
    const { results: found, notRun } = await inTime(some, of, ({ call }, done) => work(call, done));
    for (const { one, result } of found) results[one.i] = result;
    for (const { one, reason } of notRun)
      results[one.i] = skip(one.call, reason === OUT_OF_TIME ? late : 'unsupported', reason);
  };
  const versions = { ...options, now };
  // All are checked before any is timed, and the first in any case.
  const fits = (done: number): boolean => done === 0 || options.checkAll === true || budget.fits(CHECKED);
  await each(open, 'not-reached', { budget, kinds: [], piece: CHECKED, fits }, (call) =>
    checkCall(device, call, versions),
  );
  const right = open.filter(({ i }) => results[i] === null);
  const onCase = ({ call }: (typeof open)[number], done: number): void =>
    options.onProgress?.(call, done, right.length);
  await each(right, 'checked', { budget, kinds: [PREPARED, ROUNDS], onCase }, (call, done) =>
    timeCall(device, call, versions, budget.part(budget.left / (right.length - done))),
  );
  return results.filter((r) => r !== null);
}

export const skip = (call: KernelCall, state: SkippedResult['state'], reason: string): SkippedResult => ({
  ...call,
  state,
  reason: oneLine(reason),
});

/** Compilers answer with several lines; the first ones name the cause. */
const oneLine = (text: string): string => {
  const lines = text.trim().split(/\s*\n\s*/);
  const line = printable(lines.slice(0, 3).join(' '));
  return line.length > 300 ? `${line.slice(0, 297)}...` : line;
};

/** Why a call need not or cannot be measured, before the device is touched; null if it is to be. */
function skipped(device: Device, call: KernelCall, options: CompareOptions, now: SourceSet): SkippedResult | null {
  const reason = obstacle(device, call);
  if (reason !== null) return skip(call, 'unsupported', reason);
  const relation = relate(planOperation(call, deviceOptions(device)).steps, options.before, now);
  if (relation.kind === 'unreadable')
    return relation.version === 'now'
      ? skip(call, 'wrong', `this version: ${relation.reason}`)
      : skip(call, 'not-comparable', relation.reason);
  if (relation.kind === 'changed' && sameHash(call.kernel, options.before, now))
    return skip(
      call,
      'wrong',
      'its code changed and its hash did not: calibrations would keep times of the other code',
    );
  return relation.kind === 'identical' && !options.all ? skip(call, 'identical', 'the sources are identical') : null;
}

/** Kinds of pieces; the last are the fewest rounds of a call. */
const [CHECKED, PREPARED, ROUNDS] = ['pair checked', 'pair prepared', 'rounds'];

type Versions = CompareOptions & { readonly now: SourceSet };

/** Both versions against float64: null where they are right. */
async function checkCall(device: Device, call: KernelCall, options: Versions): Promise<SkippedResult | null> {
  for (const side of ['now', 'before'] as const) {
    const wrong = await faultOf(device, call, options[side], options.seed);
    if (wrong && side === 'now') return skip(call, 'wrong', `this version: ${wrong.reason}`);
    if (wrong) return skip(call, 'not-comparable', `the other version ${wrong.fault}: ${wrong.reason}`);
  }
  return null;
}

/**
 * Runs a version once on fresh operands and compares with the float64 reference.
 * @returns why it cannot be measured at this call; null where it is right
 * @throws GpuError for faults of the device
 */
async function faultOf(
  device: Device,
  call: KernelCall,
  sources: SourceSet,
  seed: number,
): Promise<{ readonly fault: 'does not run with this program' | 'is wrong'; readonly reason: string } | null> {
  const plan = planOperation(call, deviceOptions(device));
  const owned: Buffer[] = [];
  try {
    // Operands first: what they lack is the device's fault, not the version's.
    const operands = await makeOperands(device, plan, seed, true);
    owned.push(...operands.buffers.values());
    let error: number;
    try {
      const steps = await device.bindAll(plan, operands.buffers, sources);
      owned.push(...steps.map((s) => s.uniforms));
      await device.run(steps);
      error = await relativeError(device, call, plan, operands, {}, seed);
    } catch (problem) {
      // The rest is the device's fault, not the version's.
      if (!(problem instanceof GpuError) || (problem.fault !== 'validation' && problem.fault !== 'internal'))
        throw problem;
      return { fault: 'does not run with this program', reason: problem.message };
    }
    const tolerance = toleranceOf(plan);
    if (error <= tolerance) return null;
    return { fault: 'is wrong', reason: wrongResult(error.toPrecision(2), tolerance) };
  } finally {
    device.free(...owned);
  }
}

/** Two versions of a call on the same operands and copies of them. */
export interface Pair {
  readonly before: Copies;
  readonly now: Copies;
}

/** Puts both versions on the device. The caller frees. */
function preparePair(
  device: Device,
  call: KernelCall,
  { before, now, seed }: Versions,
): Promise<Pair & { free(): void }> {
  return holding(device, async (owned) => {
    const plan = planOperation(call, deviceOptions(device));
    const operands = await makeOperands(device, plan, seed, true);
    owned.push(...operands.buffers.values());
    const sets = [operands.buffers, ...(await moreOperands(device, plan, operands, owned))];
    const bind = async (sources: SourceSet): Promise<Copies> => {
      const copies: BoundStep[][] = [];
      for (const buffers of sets) copies.push(await device.bindAll(plan, buffers, sources));
      owned.push(...copies.flat().map((step) => step.uniforms));
      return copies;
    };
    return { before: await bind(before), now: await bind(now) };
  });
}

/** `seconds`: for all rounds of this call. */
export type PairRules = TimingRules &
  Pick<CompareOptions, 'threshold'> &
  Pick<InterleaveRules, 'seconds' | 'seed' | 'clockNow'>;

/** Rounds of both versions until the ratio now / before is settled or the time is spent; at least LEAST_ROUNDS. */
export async function measurePair(
  runner: Runner,
  pair: Pair,
  rules: PairRules,
): Promise<Pick<PairedResult, 'rounds' | 'ratio' | 'callsPerBatch'>> {
  const began = rules.clockNow();
  const { calls, timers } = await batchTimers(runner, [pair.before, pair.now], rules);
  let look = LEAST_ROUNDS;
  const [before = [], now = []] = await interleave(timers.map(eachOf), {
    ...rules,
    seconds: rules.seconds - (rules.clockNow() - began),
    mirrored: true,
    leastRounds: LEAST_ROUNDS,
    mostRounds: MOST_ROUNDS,
    settled: ([old = [], own = []]) => {
      if (own.length < look) return false;
      look = Math.ceil(look * GROWTH);
      return isSettled(ratioOf(own, old, rules.seed), rules.threshold);
    },
  });
  return {
    rounds: before.map((seconds, i) => ({ before: seconds, now: now[i] as number })),
    ratio: ratioOf(now, before, rules.seed),
    callsPerBatch: calls,
  };
}

/** Times both versions in turn. */
async function timeCall(device: Device, call: KernelCall, options: Versions, budget: Budget): Promise<PairedResult> {
  const { before, now, threshold } = options;
  const pair = await budget.piece(PREPARED, () => preparePair(device, call, options));
  try {
    const began = budget.now();
    const { rounds, ratio, callsPerBatch } = await measurePair(device, pair, {
      ...options,
      batchSeconds: BATCH_SECONDS[device.description.software ? 'software' : 'hardware'],
      seconds: Math.max(0, budget.left),
      clockNow: budget.now,
    });
    budget.note(ROUNDS, ((budget.now() - began) * LEAST_ROUNDS) / rounds.length);
    const medianSeconds = { before: median(rounds.map((r) => r.before)), now: median(rounds.map((r) => r.now)) };
    return {
      ...call,
      state: 'paired',
      sameSource: relate(planOperation(call, deviceOptions(device)).steps, before, now).kind === 'identical',
      medianSeconds,
      ratio,
      verdict: verdictOf(ratio, threshold),
      rates: ratesOf(workOf(call), medianSeconds.now, options.ceilings),
      callsPerBatch,
      rounds,
    };
  } finally {
    pair.free();
  }
}
