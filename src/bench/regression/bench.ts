/** One run of `bench`: ceilings, then the calls, then the report. */
import type { Budget } from '../../io/budget.js';
import { UserError } from '../../errors.js';
import { formatNumber } from '../../numbers/units.js';
import type { Device } from '../../gpu/index.js';
import type { KernelCall, KernelName } from '../../../kernels/registry.js';
import { measureCeilings, measureOverheads, YARDSTICK_SHARE } from '../ceilings.js';
import { describeDevice, describeProgram } from '../describe.js';
import { describeHost } from '../host.js';
import { groupOf, representativeCalls, rooflineCases, type CaseGroup } from './cases.js';
import { compareVersions, type CompareOptions } from './compare.js';
import {
  BENCH_SCHEMA_VERSION,
  isOutOfTime,
  isRegression,
  type BenchReport,
  type BenchResult,
  type PathRatio,
} from './report.js';
import { measureRoofline, PREPARED, YARDSTICK_SCALE, type TimeOptions } from './roofline.js';
import type { Against } from './versions.js';

export interface BenchOptions
  extends
    Pick<CompareOptions, 'budget' | 'threshold' | 'seed' | 'all'>,
    Pick<TimeOptions, 'tuning' | 'onProgress' | 'onRound'> {
  readonly against: Against | null;
  /** Only these; all unless given. */
  readonly kernels: readonly KernelName[] | null;
  /** Only these groups of shapes; all unless given. */
  readonly shapes?: readonly CaseGroup[];
  /** Measured calls; the representative ones unless given. */
  readonly calls?: readonly KernelCall[];
  /** A slower kernel is shown, and no regression. Every call is checked, whatever time that takes. */
  readonly timesUnjudged?: boolean;
  /**
   * Seconds that a tuned kernel takes for a call on this device; 0 where a neighbour of the kernel does it on the way.
   * Null: nothing is known about such kernels there.
   */
  readonly tunedSeconds?: ((call: KernelCall) => number) | null;
}

export async function bench(device: Device, options: BenchOptions): Promise<BenchReport> {
  const { against, budget } = options;
  const { clock } = device;
  const yardstickSeconds = YARDSTICK_SHARE * budget.seconds;
  const { submitSeconds } = await measureOverheads(device, yardstickSeconds);
  const ceilings = await measureCeilings(device, submitSeconds, yardstickSeconds, YARDSTICK_SCALE);
  const roofline = rooflineCases(device.description.software);
  const wanted = (c: KernelCall): boolean =>
    (options.kernels?.includes(c.kernel) ?? true) && (options.shapes?.includes(groupOf(c.kernel)) ?? true);
  const calls = (
    options.calls ?? (against === null ? roofline.calls : representativeCalls(device.description.software))
  ).filter(wanted);
  const rules = { ...options, calls, clock, submitSeconds, ceilings };
  const notes: string[] = [];
  let results: BenchResult[];
  let paths: PathRatio[] = [];
  const before = budget.spent;
  if (against === null) {
    // A call takes about as long to be put on the device as all before it.
    budget.note(PREPARED, before);
    if (!budget.fits(PREPARED)) throw nothingMeasured(before, budget);
    const answer = await measureRoofline(device, { ...rules, paths: roofline.paths });
    ({ paths } = answer);
    results = answer.results.map((r) => withAttainable(r, options.tunedSeconds ?? null));
    if (!options.tunedSeconds)
      notes.push('no share of the attainable rate: what tuned kernels reach is known of GPUs in the catalogue only');
    notes.push(`${answer.rounds} rounds in turn, ceilings included`);
    for (const [name, reason] of Object.entries(ceilings.reasons ?? {}))
      notes.push(`no ${name.replace(/FlopsPerSecond$/, '')} ceiling: ${reason}`);
  } else
    results = await compareVersions(device, {
      ...rules,
      before: against.sources,
      checkAll: options.timesUnjudged === true,
    });
  if (!options.timesUnjudged && isOutOfTime(results)) throw nothingMeasured(before, budget);
  return {
    schema: 'lla-sim/bench',
    schemaVersion: BENCH_SCHEMA_VERSION,
    program: describeProgram(),
    device: describeDevice(device),
    host: describeHost(),
    clock,
    ceilings,
    against: against && { kind: against.kind, name: against.name },
    threshold: options.threshold,
    budgetSeconds: budget.seconds,
    elapsedSeconds: budget.spent,
    seed: options.seed,
    results,
    paths,
    notes,
    regressed: results.some((r) => isRegression(r) && !(options.timesUnjudged && r.state === 'paired')),
  };
}

/** @param before seconds of what comes before the calls */
const nothingMeasured = (before: number, { seconds }: Budget): UserError =>
  new UserError(
    `nothing was measured: overheads and ceilings took ${formatNumber(before)} of ${formatNumber(seconds)} s`,
    `give it more time, such as --budget ${Math.ceil(Math.max(4 * before, 2 * seconds))}s, or a machine that is ` +
      'less busy',
  );

/** A time beside what a tuned kernel takes. */
function withAttainable(r: BenchResult, tunedSeconds: ((call: KernelCall) => number) | null): BenchResult {
  if (r.state !== 'timed') return r;
  const tuned = tunedSeconds?.(r) ?? 0;
  return { ...r, attainableShare: tuned > 0 ? tuned / r.medianSeconds : null };
}
