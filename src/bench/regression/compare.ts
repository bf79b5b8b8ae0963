/** Compares two versions of the kernels, call by call. */
import { clockNow } from '../../clock.js';
import { deviceOptions, GpuError, planOperation, type Device } from '../../gpu/index.js';
import { OWN_SOURCES, type SourceSet } from '../../../kernels/source.js';
import { workOf, type KernelCall } from '../../../kernels/registry.js';
import { printable } from '../../errors.js';
import type { Calibration } from '../../schema/calibration.js';
import { obstacle } from '../measure.js';
import type { Clock } from '../../gpu/platform.js';
import { median } from '../../statistics.js';
import { preparePair, VersionError, verifyVersion } from './prepare.js';
import { ratesOf, type BenchResult, type SkippedResult } from './report.js';
import { measurePair } from './rounds.js';
import { verdictOf } from './statistics.js';
import { relate } from './versions.js';

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
  /** Time for all calls; time that a call leaves goes to the others. */
  readonly seconds: number;
  readonly seed: number;
  /** Measure calls whose sources are the same, too. */
  readonly all: boolean;
  readonly onProgress?: (call: KernelCall, done: number, total: number) => void;
}

export async function compareVersions(device: Device, options: CompareOptions): Promise<BenchResult[]> {
  const now = options.now ?? OWN_SOURCES;
  const started = clockNow();
  const results: (BenchResult | null)[] = options.calls.map((call) => skipped(device, call, options, now));
  const open = options.calls.flatMap((call, i) => (results[i] === null ? [{ call, i }] : []));
  for (const [done, { call, i }] of open.entries()) {
    options.onProgress?.(call, done, open.length);
    const left = options.seconds - (clockNow() - started);
    try {
      results[i] = await compareCall(device, call, { ...options, now }, Math.max(0, left / (open.length - done)));
    } catch (error) {
      if (!(error instanceof GpuError) || error.fault === 'lost') throw error;
      results[i] = skip(call, 'unsupported', error.message);
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
  if (relation.kind === 'unreadable') return skip(call, 'not-comparable', relation.reason);
  return relation.kind === 'identical' && !options.all ? skip(call, 'identical', 'the sources are identical') : null;
}

async function compareCall(
  device: Device,
  call: KernelCall,
  options: CompareOptions & { readonly now: SourceSet },
  seconds: number,
): Promise<BenchResult> {
  const begun = clockNow();
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
  const pair = await preparePair(device, call, { before: options.before, now: options.now }, options.seed);
  try {
    const { rounds, ratio, callsPerBatch } = await measurePair(device, pair, {
      clock: options.clock,
      submitSeconds: options.submitSeconds,
      batchSeconds: BATCH_SECONDS[device.description.software ? 'software' : 'hardware'],
      threshold: options.threshold,
      seconds: Math.max(0, seconds - (clockNow() - begun)),
      seed: options.seed,
      clockNow,
    });
    const medianSeconds = { before: median(rounds.map((r) => r.before)), now: median(rounds.map((r) => r.now)) };
    const sameSource =
      relate(planOperation(call, deviceOptions(device)).steps, options.before, options.now).kind === 'identical';
    return {
      kernel: call.kernel,
      variant: call.variant,
      shape: call.shape,
      state: 'paired',
      sameSource,
      medianSeconds,
      ratio,
      verdict: verdictOf(ratio, options.threshold),
      rates: ratesOf(workOf(call), medianSeconds.now, options.ceilings),
      callsPerBatch,
      rounds,
    };
  } finally {
    pair.free();
  }
}
