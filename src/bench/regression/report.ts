/**
 * The answer of `bench`, as it is printed with --format json. Seconds, bytes and operations; ratios are plain numbers.
 */
import type { Work } from '../../../kernels/spec.js';
import type { KernelCall } from '../../../kernels/registry.js';
import type { Calibration } from '../../schema/calibration.js';
import type { Clock } from '../../gpu/platform.js';
import type { CeilingKind } from '../ceilings.js';
import type { Verdict } from './statistics.js';
import type { Interval } from '../../numbers/statistics.js';

export const BENCH_SCHEMA_VERSION = 1;

/** What a time means physically: achieved rates, and their share of what the device reaches at best. */
export interface Rates {
  readonly bytesPerSecond: number;
  readonly flopsPerSecond: number;
  /** Of the measured read bandwidth. Above 1 where operands lie in a cache. */
  readonly readShare: number;
  /** Of the measured f32 rate. */
  readonly f32Share: number;
  /** The larger of the two: how close the call is to the roofline of a kernel without matrix units. */
  readonly rooflineShare: number;
  readonly boundBy: 'read' | 'f32';
}

/**
 * Shares of what the device reaches at best in the same rounds, with 95 % intervals; null where there is no such
 * ceiling or work.
 */
type Shares = Readonly<Record<CeilingKind, Interval | null>>;

/** One path of attention over another at the same cache: the sums of their kernels' times in the same rounds. */
export interface PathRatio {
  /** Key and value rank, such as `96/160`. */
  readonly ranks: string;
  readonly context: number;
  readonly above: string;
  readonly below: string;
  /** Below 1: the first path is faster. */
  readonly ratio: Interval;
}

/** Without `--against`. */
export interface TimedResult extends Readonly<KernelCall> {
  readonly state: 'timed';
  /** Seconds a call, one entry a repetition. */
  readonly seconds: readonly number[];
  readonly medianSeconds: number;
  readonly relativeError: number;
  readonly rates: Rates;
  readonly shares: Shares;
  /** Time that a tuned kernel of its class takes on this GPU over the measured one; null where no law is known. */
  readonly attainableShare?: number | null;
}

/** Two versions measured in turn. */
export interface PairedResult extends Readonly<KernelCall> {
  readonly state: 'paired';
  readonly sameSource: boolean;
  readonly medianSeconds: { readonly before: number; readonly now: number };
  /** now / before: above 1 is slower. */
  readonly ratio: Interval;
  readonly verdict: Verdict;
  readonly rates: Rates;
  readonly callsPerBatch: number;
  /** Seconds a call in one round, each the mean of the side's two turns. */
  readonly rounds: readonly { readonly before: number; readonly now: number }[];
}

/**
 * Not measured. `not-reached`: the time budget was spent; `checked`: it was before this call was timed, and both
 * versions are right. `identical`: the sources are the same, so there is nothing to compare. `not-comparable`: the
 * other version does not fit this program or gives wrong results. `wrong`: this version gives wrong results, or has the
 * hash of another code; that counts as a regression. `unsupported`: the device cannot run the call.
 */
export interface SkippedResult extends Readonly<KernelCall> {
  readonly state: 'identical' | 'not-comparable' | 'wrong' | 'unsupported' | 'not-reached' | 'checked';
  readonly reason: string;
}

export type BenchResult = TimedResult | PairedResult | SkippedResult;

export interface BenchReport extends Readonly<Pick<Calibration, 'program' | 'device' | 'host' | 'ceilings'>> {
  readonly schema: 'lla-sim/bench';
  readonly schemaVersion: number;
  readonly clock: Clock;
  /** Null without `--against`. */
  readonly against: { readonly kind: 'folder' | 'git'; readonly name: string } | null;
  readonly threshold: number;
  readonly budgetSeconds: number;
  readonly elapsedSeconds: number;
  readonly seed: number;
  readonly results: readonly BenchResult[];
  /** Only without `--against`. */
  readonly paths: readonly PathRatio[];
  readonly notes: readonly string[];
  /** True if any kernel is slower beyond the threshold, or wrong. */
  readonly regressed: boolean;
}

/** True where `bench` ends with exit code 4. */
export const isRegression = (r: BenchResult): boolean =>
  r.state === 'wrong' || (r.state === 'paired' && r.verdict === 'slower');

/** Whether the time ended before anything was measured or found wrong. */
export const isOutOfTime = (results: readonly BenchResult[]): boolean =>
  results.some(({ state }) => state === 'not-reached' || state === 'checked') &&
  !results.some(({ state }) => state === 'timed' || state === 'paired' || state === 'wrong');

/** Rates of a call that takes `seconds`. */
export function ratesOf(
  work: Pick<Work, 'readBytes' | 'writeBytes' | 'flops'>,
  seconds: number,
  ceilings: Calibration['ceilings'],
): Rates {
  const bytesPerSecond = (work.readBytes + work.writeBytes) / seconds;
  const flopsPerSecond = work.flops / seconds;
  const readShare = bytesPerSecond / ceilings.readBytesPerSecond;
  const f32Share = flopsPerSecond / ceilings.f32FlopsPerSecond;
  return {
    bytesPerSecond,
    flopsPerSecond,
    readShare,
    f32Share,
    rooflineShare: Math.max(readShare, f32Share),
    boundBy: readShare >= f32Share ? 'read' : 'f32',
  };
}
