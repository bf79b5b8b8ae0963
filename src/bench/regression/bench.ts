/** One run of `bench`: ceilings, then the calls, then the report. */
import type { Device } from '../../gpu/index.js';
import type { KernelCall, KernelName } from '../../../kernels/registry.js';
import { measureCeilings, measureOverheads } from '../ceilings.js';
import { describeDevice, describeProgram } from '../describe.js';
import { describeHost } from '../host.js';
import { groupOf, representativeCalls, rooflineCases, type CaseGroup } from './cases.js';
import { compareVersions } from './compare.js';
import { BENCH_SCHEMA_VERSION, isRegression, type BenchReport, type BenchResult, type PathRatio } from './report.js';
import { measureRoofline } from './roofline.js';
import type { Tuning } from '../../../kernels/launch.js';
import type { Against } from './versions.js';

export interface BenchOptions {
  readonly against: Against | null;
  /** Only these; all unless given. */
  readonly kernels: readonly KernelName[] | null;
  /** Only these groups of shapes; all unless given. */
  readonly shapes?: readonly CaseGroup[];
  /** Values of tunable constants; the planner's own for kernels without. */
  readonly tuning?: Readonly<Partial<Record<KernelName, Tuning>>>;
  /** Measured calls; the representative ones unless given. */
  readonly calls?: readonly KernelCall[];
  readonly budgetSeconds: number;
  readonly threshold: number;
  readonly seed: number;
  readonly all: boolean;
  /**
   * Seconds that a tuned kernel takes for a call on this device; 0 where a neighbour of the kernel does it on the way.
   * Null: nothing is known about such kernels there.
   */
  readonly tunedSeconds?: ((call: KernelCall) => number) | null;
  readonly onProgress?: (call: KernelCall, done: number, total: number) => void;
  readonly onRound?: (rounds: number, elapsedSeconds: number, totalSeconds: number) => void;
}

export async function bench(device: Device, options: BenchOptions): Promise<BenchReport> {
  const started = performance.now();
  const elapsed = (): number => (performance.now() - started) / 1000;
  const { against } = options;
  const { clock } = device;
  const { submitSeconds } = await measureOverheads(device);
  const ceilings = await measureCeilings(device, submitSeconds);
  const roofline = rooflineCases(device.description.software);
  const wanted = (c: KernelCall): boolean =>
    (options.kernels?.includes(c.kernel) ?? true) && (options.shapes?.includes(groupOf(c.kernel)) ?? true);
  const calls = (
    options.calls ?? (against === null ? roofline.calls : representativeCalls(device.description.software))
  ).filter(wanted);
  const rules = {
    calls,
    ...(options.tuning ? { tuning: options.tuning } : {}),
    ...(options.onRound ? { onRound: options.onRound } : {}),
    clock,
    submitSeconds,
    ceilings,
    seed: options.seed,
    threshold: options.threshold,
    seconds: Math.max(0, options.budgetSeconds - elapsed()),
    ...(options.onProgress ? { onProgress: options.onProgress } : {}),
  };
  const notes: string[] = [];
  let results: BenchResult[];
  let paths: PathRatio[] = [];
  if (against === null) {
    const answer = await measureRoofline(device, { ...rules, paths: roofline.paths });
    ({ paths } = answer);
    results = answer.results.map((r) => withAttainable(r, options.tunedSeconds ?? null));
    if (!options.tunedSeconds)
      notes.push('no share of the attainable rate: what tuned kernels reach is known of GPUs in the catalogue only');
    notes.push(`${answer.rounds} rounds in turn, ceilings included`);
    for (const [name, reason] of Object.entries(ceilings.reasons ?? {}))
      notes.push(`no ${name.replace(/FlopsPerSecond$/, '')} ceiling: ${reason}`);
  } else results = await compareVersions(device, { ...rules, before: against.sources, all: options.all });
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
    budgetSeconds: options.budgetSeconds,
    elapsedSeconds: elapsed(),
    seed: options.seed,
    results,
    paths,
    notes,
    regressed: results.some(isRegression),
  };
}

/** A time beside what a tuned kernel takes. */
function withAttainable(r: BenchResult, tunedSeconds: ((call: KernelCall) => number) | null): BenchResult {
  if (r.state !== 'timed') return r;
  const tuned = tunedSeconds?.({ kernel: r.kernel, variant: r.variant, shape: r.shape }) ?? 0;
  return { ...r, attainableShare: tuned > 0 ? tuned / r.medianSeconds : null };
}
