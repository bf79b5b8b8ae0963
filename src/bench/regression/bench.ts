/** One run of `bench`: ceilings, then the calls, then the report. */
import type { Device } from '../../gpu/index.js';
import type { KernelCall, KernelName } from '../../schedule/kernels.js';
import type { Calibration } from '../../schema/calibration.js';
import { measureCeilings, measureOverheads } from '../ceilings.js';
import { describeDevice, describeHost, describeProgram } from '../host.js';
import type { Clock } from '../timing.js';
import { compareShares, earlierCalls, requireSameDevice, WEAKER } from './calibration.js';
import { representativeCalls } from './cases.js';
import { compareVersions } from './compare.js';
import { BENCH_SCHEMA_VERSION, isRegression, type BenchReport, type BenchResult } from './report.js';
import { timeKernels } from './roofline.js';
import type { Against } from './versions.js';

export interface BenchOptions {
  readonly against: Exclude<Against, { kind: 'calibration' }> | { readonly kind: 'calibration'; readonly name: string; readonly calibration: Calibration } | null;
  /** Only these; all unless given. */
  readonly kernels: readonly KernelName[] | null;
  /** Measured calls; the representative ones unless given. Against a calibration they are the file's. */
  readonly calls?: readonly KernelCall[];
  readonly budgetSeconds: number;
  readonly threshold: number;
  readonly seed: number;
  readonly all: boolean;
  readonly onProgress?: (call: KernelCall, done: number, total: number) => void;
}

export async function bench(device: Device, options: BenchOptions): Promise<BenchReport> {
  const started = performance.now();
  const elapsed = (): number => (performance.now() - started) / 1000;
  const { against } = options;
  if (against?.kind === 'calibration') requireSameDevice(device, against.calibration, against.name);
  const clock: Clock = device.hasTimestamps ? 'gpu-timestamp' : 'wall';
  const { submitSeconds } = await measureOverheads(device);
  const ceilings = await measureCeilings(device, submitSeconds);
  const calls = (options.calls ?? representativeCalls(device.description.software)).filter((c) => options.kernels?.includes(c.kernel) ?? true);
  const rules = { calls, clock, submitSeconds, ceilings, seed: options.seed, threshold: options.threshold, seconds: Math.max(0, options.budgetSeconds - elapsed()), ...(options.onProgress ? { onProgress: options.onProgress } : {}) };
  const notes: string[] = [];
  let results: BenchResult[];
  if (against === null) results = await timeKernels(device, rules);
  else if (against.kind === 'calibration') {
    const { calibration } = against;
    const earlier = earlierCalls(device, calibration, options.kernels);
    results = await compareShares(device, calibration, { ...rules, calls: earlier }, () => measureCeilings(device, submitSeconds));
    notes.push(WEAKER);
    const changed = [...new Set(earlier.filter((c) => !c.sameSource).map((c) => c.kernel))];
    if (changed.length > 0) notes.push(`source changed since that calibration: ${changed.join(', ')}`);
    if (calibration.device.driver !== device.description.driver) notes.push('the driver is another one than in that calibration');
    if (calibration.clock.kind !== clock) notes.push(`that calibration was timed by ${calibration.clock.kind}, this run by ${clock}`);
  } else results = await compareVersions(device, { ...rules, before: against.sources, all: options.all });
  return {
    schema: 'lla-sim/bench', schemaVersion: BENCH_SCHEMA_VERSION, program: describeProgram(), device: describeDevice(device), host: describeHost(), clock, ceilings,
    against: against && { kind: against.kind, name: against.name },
    threshold: options.threshold, budgetSeconds: options.budgetSeconds, elapsedSeconds: elapsed(), seed: options.seed, results, notes, regressed: results.some(isRegression),
  };
}
