/**
 * Finds values of a kernel's tunable constants (`tunables` of its launch) that are faster than the planner's own: one
 * after the other, each candidate in turn with the best so far, at a few shapes. A candidate has to give right results
 * at every shape, and replaces the best only where the whole interval of the time ratio lies below 1.
 */
import type { Budget } from '../../io/budget.js';
import { isDeepStrictEqual } from 'node:util';
import { deviceOptions, GpuError, planOperation, type Device } from '../../gpu/index.js';
import type { Tunable } from '../../../kernels/launch.js';
import type { Tuning } from '../../../kernels/options.js';
import { TUNABLES } from '../../../kernels/launches.js';
import type { KernelCall, KernelName } from '../../../kernels/registry.js';
import type { Calibration } from '../../schema/calibration.js';
import { interleave } from '../rounds.js';
import { eachOf } from '../timing.js';
import { obstacle, openPoint } from '../measure.js';
import type { OpenPoint } from './visits.js';
import type { Clock } from '../../gpu/platform.js';
import { bootstrap, exponential } from '../regression/statistics.js';
import type { Interval } from '../../numbers/statistics.js';

/** Rounds of a candidate and the best so far, at one shape. */
const LEAST_ROUNDS = 12;
const MOST_ROUNDS = 60;
/** A gain smaller than this is not worth a constant of its own. */
const LEAST_GAIN = 0.02;

/** Kind of piece: a tuning beside the best so far, at one shape. */
const COMPARED = 'compared';

/** One candidate that was tried. */
export interface Trial {
  readonly kernel: KernelName;
  readonly tuning: Tuning;
  /** Time over that of the best so far, over all shapes; null where it could not be measured. */
  readonly ratio: Interval | null;
  readonly kept: boolean;
  /** Why it was not measured, or null. */
  readonly reason: string | null;
}

/** What the search needs of a device; a test gives a fake one. */
export interface TuneTools {
  /**
   * Times of a tuning and of the best so far at one shape, in turn: ratios round by round.
   * @throws GpuError where the tuning cannot run there or gives wrong results
   */
  compare(call: KernelCall, tuning: Tuning, best: Tuning): Promise<readonly number[]>;
  /** Whether the tuning changes the launch that the planner makes for the call. */
  changes(call: KernelCall, tuning: Tuning, best: Tuning): boolean;
  /** True once there is no time for another candidate. */
  spent(): boolean;
  readonly seed: number;
  readonly onTrial?: (trial: Trial) => void;
}

/**
 * Searches coordinate by coordinate. Returns the chosen values by kernel, without kernels whose own values are best.
 */
export async function searchTuning(
  calls: readonly KernelCall[],
  tools: TuneTools,
  tunables: Partial<Record<KernelName, readonly Tunable[]>> = TUNABLES,
): Promise<Partial<Record<KernelName, Tuning>>> {
  const chosen: Partial<Record<KernelName, Tuning>> = {};
  for (const kernel of new Set(calls.map((c) => c.kernel))) {
    const own = calls.filter((c) => c.kernel === kernel);
    let best: Tuning = {};
    for (const { name, values } of tunables[kernel] ?? []) {
      const base = best;
      for (const value of values) {
        if (tools.spent()) break;
        const trial = await tryTuning(kernel, own, { ...base, [name]: value }, best, tools);
        if (trial === null) continue;
        if (trial.kept) best = trial.tuning;
        tools.onTrial?.(trial);
      }
    }
    if (Object.keys(best).length > 0) chosen[kernel] = best;
  }
  return chosen;
}

/** Null where the tuning changes nothing at any shape. */
async function tryTuning(
  kernel: KernelName,
  calls: readonly KernelCall[],
  tuning: Tuning,
  best: Tuning,
  tools: TuneTools,
): Promise<Trial | null> {
  const concerned = calls.filter((call) => tools.changes(call, tuning, best));
  if (concerned.length === 0) return null;
  const logs: Interval[] = [];
  try {
    for (const call of concerned) {
      logs.push(bootstrap((await tools.compare(call, tuning, best)).map(Math.log), tools.seed));
    }
  } catch (error) {
    if (!(error instanceof GpuError) || error.fault === 'lost') throw error;
    return { kernel, tuning, ratio: null, kept: false, reason: error.message };
  }
  // Shapes count alike; their errors are independent. A tuning that is surely slower at one shape is rejected, even if
  // the others gain.
  const ratio = exponential(meanOf(logs));
  const kept = ratio.high < 1 && ratio.estimate < 1 - LEAST_GAIN && logs.every((l) => l.low <= Math.log1p(LEAST_GAIN));
  return { kernel, tuning, ratio, kept, reason: null };
}

function meanOf(logs: readonly Interval[]): Interval {
  const n = logs.length;
  const estimate = logs.reduce((sum, l) => sum + l.estimate, 0) / n;
  const reach = (side: (l: Interval) => number): number => Math.hypot(...logs.map(side)) / n;
  return {
    estimate,
    low: estimate - reach((l) => l.estimate - l.low),
    high: estimate + reach((l) => l.high - l.estimate),
  };
}

export interface TuneOptions extends Pick<TuneTools, 'seed' | 'onTrial'> {
  readonly calls: readonly KernelCall[];
  readonly clock: Clock;
  readonly submitSeconds: number;
  /** Runs already. */
  readonly budget: Budget;
  readonly signal?: AbortSignal;
}

/** The search on a device. */
export async function tune(device: Device, options: TuneOptions): Promise<Partial<Record<KernelName, Tuning>>> {
  const { budget } = options;
  const stepsOf = (call: KernelCall, tuning: Tuning): unknown =>
    planOperation(call, { ...deviceOptions(device), tuning }).steps;
  const trials = options.calls.reduce(
    (sum, { kernel }) => sum + (TUNABLES[kernel] ?? []).reduce((s, t) => s + t.values.length, 0),
    0,
  );
  const calls = options.calls.filter((c) => obstacle(device, c) === null);
  return searchTuning(calls, {
    seed: options.seed,
    spent: () => !budget.fits(COMPARED) || (options.signal?.aborted ?? false),
    changes: (call, tuning, best) => {
      try {
        return !isDeepStrictEqual(stepsOf(call, tuning), stepsOf(call, best));
      } catch (error) {
        // A value that a shape does not allow is a trial that fails, and says so.
        if (error instanceof GpuError) return true;
        throw error;
      }
    },
    compare: (call, tuning, best) =>
      budget.piece(COMPARED, async () => {
        const open: OpenPoint[] = [];
        try {
          for (const own of [tuning, best]) open.push(await openPoint(device, call, options, null, { tuning: own }));
          const rules = {
            ...{ leastRounds: LEAST_ROUNDS, mostRounds: MOST_ROUNDS, seed: options.seed, clockNow: budget.now },
            seconds: budget.seconds / Math.max(1, trials),
          };
          const measures = open.map(({ time }) => eachOf(time));
          const [candidate = [], reference = []] = await interleave(measures, rules);
          return candidate.map((s, i) => s / (reference[i] as number));
        } finally {
          for (const point of open) point.free();
        }
      }),
    ...(options.onTrial ? { onTrial: options.onTrial } : {}),
  });
}

/** The tuning that a calibration keeps, by kernel. */
export const tuningOf = (calibration: Calibration): Partial<Record<KernelName, Tuning>> =>
  Object.fromEntries(calibration.kernels.flatMap(({ kernel, tuning }) => (tuning ? [[kernel, tuning]] : [])));
