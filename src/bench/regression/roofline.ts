/**
 * This program's kernels beside the device's ceilings, all in turn: the share of a ceiling that a kernel reaches
 * compares two times of the same round, so that a machine that is slower for a while shows in neither.
 */
import type { Tuning } from '../../../kernels/options.js';
import { OUT_OF_TIME } from '../../io/budget.js';
import { GpuError, type Device } from '../../gpu/index.js';
import { workOf, type KernelCall, type KernelName } from '../../../kernels/registry.js';
import { openYardsticks, type CeilingKind, type Yardsticks } from '../ceilings.js';
import type { OpenPoint } from '../calibrate/visits.js';
import { interleave, ratioOf, sumOf, type Measure } from '../rounds.js';
import { obstacle, openPoint, tuningOptions } from '../measure.js';
import { eachOf } from '../timing.js';
import { median, type Interval } from '../../numbers/statistics.js';
import type { PathSet } from './cases.js';
import { skip, type CallRules } from './compare.js';
import { ratesOf, type BenchResult, type PathRatio, type SkippedResult, type TimedResult } from './report.js';
import { midmean } from './statistics.js';

export interface TimeOptions extends CallRules {
  /** Values of tunable constants; the planner's own for kernels without. */
  readonly tuning?: Readonly<Partial<Record<KernelName, Tuning>>>;
  /** After each round: the share of the time that is spent. */
  readonly onRound?: (rounds: number, elapsedSeconds: number, totalSeconds: number) => void;
}

/** Part of a ceiling's usual work that is done each round. */
export const YARDSTICK_SCALE = 0.25;
/** An interval of fewer rounds says little; more rounds than this add nothing. */
const LEAST_ROUNDS = 4;
const MOST_ROUNDS = 400;
/** No call is prepared after this share of the budget: the rest is for rounds. */
const PREPARING_SHARE = 0.7;
/** Kinds of pieces. */
export const PREPARED = 'call prepared';
const ROUNDS = 'rounds';

const keyOf = (call: KernelCall): string => `${call.kernel} ${call.variant} ${JSON.stringify(call.shape)}`;

/** A call that is checked, bound and warm; or why not. */
async function openTimed(device: Device, call: KernelCall, options: TimeOptions): Promise<OpenPoint | SkippedResult> {
  const extra = tuningOptions(options.tuning?.[call.kernel]);
  const reason = obstacle(device, call, extra);
  if (reason !== null) return skip(call, 'unsupported', reason);
  try {
    return await openPoint(device, call, options, null, extra);
  } catch (error) {
    if (!(error instanceof GpuError) || error.fault === 'lost') throw error;
    const wrong = error.fault === 'internal' || error.fault === 'validation';
    return skip(call, wrong ? 'wrong' : 'unsupported', error.message);
  }
}

export interface RooflineAnswer {
  readonly results: BenchResult[];
  readonly paths: PathRatio[];
  readonly rounds: number;
}

/** Times calls and ceilings in turn, and the paths of attention against each other. */
export async function measureRoofline(
  device: Device,
  options: TimeOptions & { readonly paths: readonly PathSet[] },
): Promise<RooflineAnswer> {
  const { budget } = options;
  const open: { call: KernelCall; point: OpenPoint; measure: Measure; index: number }[] = [];
  const results: (BenchResult | null)[] = [];
  let yardsticks: Yardsticks | undefined;
  try {
    yardsticks = await openYardsticks(device, options.submitSeconds, YARDSTICK_SCALE);
    const kinds = [...yardsticks.kinds];
    const once = async (measure: Measure): Promise<number> => {
      const began = budget.now();
      await measure();
      return budget.now() - began;
    };
    // Of one round, as far as it is known.
    let roundSeconds = 0;
    for (const [, { run }] of kinds) roundSeconds += await once(run);
    for (const [index, call] of options.calls.entries()) {
      budget.expect(ROUNDS, LEAST_ROUNDS * roundSeconds);
      if (budget.spent > PREPARING_SHARE * budget.seconds || !budget.fits(PREPARED, ROUNDS)) {
        results.push(skip(call, 'not-reached', OUT_OF_TIME));
        continue;
      }
      options.onProgress?.(call, index, options.calls.length);
      const point = await budget.piece(PREPARED, () => openTimed(device, call, options));
      results.push('state' in point ? point : null);
      if ('state' in point) continue;
      const measure = eachOf(point.time);
      open.push({ call, index, point, measure });
      roundSeconds += await once(measure);
    }
    const times = await interleave([...kinds.map(([, { run }]) => run), ...open.map((o) => o.measure)], {
      seconds: Math.max(0, budget.left),
      leastRounds: LEAST_ROUNDS,
      mostRounds: open.length === 0 ? 0 : MOST_ROUNDS,
      seed: options.seed,
      clockNow: budget.now,
      ...(options.onRound ? { onRound: options.onRound } : {}),
    });
    // Seconds a byte or an operation, round by round.
    const unit = new Map(kinds.map(([kind, { work }], i) => [kind, (times[i] as number[]).map((s) => s / work)]));
    const series = new Map(open.map(({ call }, i) => [keyOf(call), times[kinds.length + i] as number[]]));
    for (const { call, index, point } of open)
      results[index] = timed(call, point, series.get(keyOf(call)) as number[], unit, options);
    return {
      results: results.filter((r) => r !== null),
      paths: options.paths.flatMap((p) => pathRatios(p, series, options.seed)),
      rounds: times[0]?.length ?? 0,
    };
  } finally {
    yardsticks?.free();
    for (const { point } of open) point.free();
  }
}

function timed(
  call: KernelCall,
  { sample }: OpenPoint,
  seconds: readonly number[],
  unit: ReadonlyMap<CeilingKind, readonly number[]>,
  options: TimeOptions,
): TimedResult {
  const work = workOf(call);
  const medianSeconds = median(seconds);
  const rates = ratesOf(work, medianSeconds, options.ceilings);
  /** Time that the ceiling would take over the time taken. */
  const share = (kind: CeilingKind, amount: number): Interval | null => {
    const each = unit.get(kind);
    return each && amount > 0
      ? ratioOf(
          each.map((s) => s * amount),
          seconds,
          options.seed,
        )
      : null;
  };
  const bytes = work.readBytes + work.writeBytes;
  return {
    ...call,
    state: 'timed',
    seconds,
    medianSeconds,
    relativeError: sample.relativeError,
    rates,
    shares: {
      read: share('read', bytes),
      copy: share('copy', bytes),
      f32: share('f32', work.flops),
      f16: share('f16', work.flops),
      matrix: share('matrix', work.matrixFlops),
    },
  };
}

/**
 * Block-absorbed attention over the better of the two rebuilds, and over absorbed attention; only where all were
 * measured.
 */
export function pathRatios(set: PathSet, series: ReadonlyMap<string, readonly number[]>, seed: number): PathRatio[] {
  const timeOf = (calls: readonly KernelCall[]): number[] | null => {
    const present = calls.map((c) => series.get(keyOf(c)));
    return present.length > 0 && present.every((s) => s !== undefined) ? sumOf(present) : null;
  };
  const block = timeOf(set.paths['block-absorbed']);
  if (!block || block.length === 0) return [];
  const rebuilds = (['fused rebuild', 'materialised rebuild'] as const).flatMap((name) => {
    const times = timeOf(set.paths[name]);
    return times ? [{ name, times, centre: midmean(times) }] : [];
  });
  const best = rebuilds.sort((a, b) => a.centre - b.centre)[0];
  const absorbed = timeOf(set.paths.absorbed);
  const ratio = (name: string, below: readonly number[]): PathRatio => ({
    ranks: set.ranks,
    context: set.context,
    above: 'block-absorbed',
    below: name,
    ratio: ratioOf(block, below, seed),
  });
  return [...(best ? [ratio(best.name, best.times)] : []), ...(absorbed ? [ratio('absorbed', absorbed)] : [])];
}
