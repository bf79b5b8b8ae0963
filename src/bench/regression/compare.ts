/** Compares two versions of the kernels, call by call. */
import { OUT_OF_TIME, type Budget } from '../../io/budget.js';
import { deviceOptions, GpuError, planOperation, type Device } from '../../gpu/index.js';
import { OWN_SOURCES, type SourceSet } from '../../../kernels/source.js';
import { workOf, type KernelCall } from '../../../kernels/registry.js';
import { printable } from '../../errors.js';
import type { Calibration } from '../../schema/calibration.js';
import { obstacle } from '../measure.js';
import type { Clock } from '../../gpu/platform.js';
import { median } from '../../numbers/statistics.js';
import { preparePair, VersionError, verifyVersion } from './prepare.js';
import { ratesOf, type BenchResult, type PairedResult, type SkippedResult } from './report.js';
import { LEAST_ROUNDS, measurePair } from './rounds.js';
import { verdictOf } from './statistics.js';
import { relate, sameHash } from './versions.js';

/** A submission's length: far above what submitting costs, and a round of four no longer than most phases of noise. */
const BATCH_SECONDS = { software: 0.008, hardware: 0.005 };

export interface CompareOptions {
  readonly calls: readonly KernelCall[];
  readonly before: SourceSet;
  /** This program's kernels unless given. */
  readonly now?: SourceSet;
  readonly clock: Clock;
  readonly submitSeconds: number;
  readonly ceilings: Calibration['ceilings'];
  /** Fraction, such as 0.05. */
  readonly threshold: number;
  /** For all calls; time that a call leaves goes to the others. */
  readonly budget: Budget;
  readonly seed: number;
  /** Measure calls whose sources are the same, too. */
  readonly all: boolean;
  /** Check all calls, whatever time that takes. */
  readonly checkAll?: boolean;
  readonly onProgress?: (call: KernelCall, done: number, total: number) => void;
}

export async function compareVersions(device: Device, options: CompareOptions): Promise<BenchResult[]> {
  const now = options.now ?? OWN_SOURCES;
  const results: (BenchResult | null)[] = options.calls.map((call) => skipped(device, call, options, now));
  const open = options.calls.flatMap((call, i) => (results[i] === null ? [{ call, i }] : []));
  const { budget } = options;
  /** Does a piece of a call's work; where it fails, the call has its result. */
  const attempt = async (
    { call, i }: (typeof open)[number],
    work: () => Promise<BenchResult | null>,
  ): Promise<void> => {
    try {
      results[i] = await work();
    } catch (error) {
      if (!(error instanceof GpuError) || error.fault === 'lost') throw error;
      results[i] = skip(call, 'unsupported', error.message);
    }
  };
  // All are checked before any is timed.
  for (const [done, one] of open.entries()) {
    // The first is tried: nothing is known of it.
    if (done > 0 && !options.checkAll && !budget.fits(CHECKED))
      results[one.i] = skip(one.call, 'not-reached', OUT_OF_TIME);
    else await attempt(one, () => budget.piece(CHECKED, () => checkCall(device, one.call, { ...options, now })));
  }
  const right = open.filter(({ i }) => results[i] === null);
  for (const [done, one] of right.entries()) {
    options.onProgress?.(one.call, done, right.length);
    if (!budget.fits(PREPARED, ROUNDS)) results[one.i] = skip(one.call, 'checked', OUT_OF_TIME);
    else {
      const part = budget.part(budget.left / (right.length - done));
      await attempt(one, () => timeCall(device, one.call, { ...options, now }, part));
    }
  }
  return results.filter((r) => r !== null);
}

export const skip = (call: KernelCall, state: SkippedResult['state'], reason: string): SkippedResult => ({
  kernel: call.kernel,
  variant: call.variant,
  shape: call.shape,
  state,
  reason: oneLine(reason),
});

/** Compilers answer with several lines; the first ones name the cause. */
const oneLine = (text: string): string => {
  const line = printable(
    text
      .trim()
      .split(/\s*\n\s*/)
      .slice(0, 3)
      .join(' '),
  );
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
    try {
      await verifyVersion(device, call, options[side], options.seed);
    } catch (error) {
      if (!(error instanceof VersionError)) throw error;
      return side === 'now'
        ? skip(call, 'wrong', `this version: ${error.message}`)
        : skip(
            call,
            'not-comparable',
            `the other version ${error.fault === 'does not run' ? 'does not run with this program' : 'is wrong'}: ${error.message}`,
          );
    }
  }
  return null;
}

/** Times both versions in turn. */
async function timeCall(device: Device, call: KernelCall, options: Versions, budget: Budget): Promise<PairedResult> {
  const { before, now, seed, threshold } = options;
  const pair = await budget.piece(PREPARED, () => preparePair(device, call, { before, now }, seed));
  try {
    const began = budget.now();
    const { rounds, ratio, callsPerBatch } = await measurePair(device, pair, {
      clock: options.clock,
      submitSeconds: options.submitSeconds,
      batchSeconds: BATCH_SECONDS[device.description.software ? 'software' : 'hardware'],
      threshold,
      seconds: Math.max(0, budget.left),
      seed,
      clockNow: budget.now,
    });
    budget.note(ROUNDS, ((budget.now() - began) * LEAST_ROUNDS) / rounds.length);
    const medianSeconds = { before: median(rounds.map((r) => r.before)), now: median(rounds.map((r) => r.now)) };
    return {
      kernel: call.kernel,
      variant: call.variant,
      shape: call.shape,
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
