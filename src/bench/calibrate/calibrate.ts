/**
 * Measures a device: ceilings, overheads, then kernel calls until the time is spent. Every repetition is saved as it
 * ends; what cannot be measured is kept as a gap with its reason.
 */
import { clockNow } from '../../io/clock.js';
import type { Device } from '../../gpu/device.js';
import type { KernelName } from '../../../kernels/registry.js';
import { CALIBRATION_SCHEMA_VERSION, type Calibration, type Sample } from '../../schema/calibration.js';
import { measureCeilings, measureOverheads, YARDSTICK_SHARE } from '../ceilings.js';
import { lightest, nextPoint } from './choose.js';
import { compileAhead } from './compile.js';
import { describeDevice, describeProgram } from '../describe.js';
import { openPoint, tuningOptions } from '../measure.js';
import { openProbe } from '../probe.js';
import { Drift, rawCalibration, readSample, submitOf } from '../../schema/drift.js';
import { DRIFT_RETRIED } from './repetitions.js';
import { resolutionOf } from '../resolution.js';
import { permitted, planTracks, type TrackOptions, type WeightedCall } from './tracks.js';
import { samplesOf, Visits, type Track } from './visits.js';

/** A point's raw samples take at most this share of the whole budget. */
const POINT_SHARE = 0.0015;
/** Each point is visited at least twice; a visit takes this part of the time of a point. */
const VISITS = 2;
/** Shapes of a kernel that may fail before any succeeds, where adapters differ in what they can run: in browsers. */
const MOST_FAILURES = 2;
/** Runs of the probe before the first point: enough for a first reference. */
const FIRST_PROBES = 7;
/** What a first list of calls gets, at most: seconds, and share of the budget. */
const FIRST_LIST = { seconds: 8, share: 0.05 };
/** With a smaller budget a list that has all kernels asked for is the last: the next takes seconds to make. */
const LISTS_FROM_SECONDS = 30;
/**
 * Pipelines are compiled ahead in this share of the budget at most, and no more than one for so many seconds of it: the
 * rest of a smaller budget has no points for them. Not where the budget is below the last.
 */
const COMPILE = { share: 0.4, secondsEach: 4, fromSeconds: 60 };

export interface CalibrationProgress {
  kernel: KernelName;
  variant: string;
  /** Samples of this kernel and variant so far, and candidates that are left. */
  samples: number;
  left: number;
  elapsedSeconds: number;
  budgetSeconds: number;
  /** Until the end. */
  secondsLeft: number;
  /** Why the last point became a gap, or null. */
  gap: string | null;
}

/** A pipeline that was compiled before anything is timed. */
export type Compiled = Pick<CalibrationProgress, 'kernel' | 'variant' | 'elapsedSeconds' | 'secondsLeft'>;

export interface CalibrateOptions extends TrackOptions {
  seed: number;
  /**
   * Lists of calls of real schedules (bench/calibrate/anchors.ts), each made when it is due. All but the last are
   * measured for a few seconds only, so that there is something to save before a long list is made. Shapes of all
   * published models unless given.
   */
  calls: readonly (() => readonly WeightedCall[])[];
  /** Stays open. */
  device: Device;
  /** The machine, as the file records it. */
  host: Calibration['host'];
  /** An earlier calibration of this device (sameDevice), to go on with. Its ceilings and overheads are kept. */
  resumeFrom?: Calibration;
  onProgress?: (progress: CalibrationProgress) => void;
  /**
   * Opens the devices that compile ahead of the measurements (compile.ts), beside this one. Unless given, a pipeline is
   * compiled when its first point is prepared.
   */
  compilers?: () => Promise<readonly Device[]>;
  /** After each pipeline that was compiled so. */
  onCompiled?: (progress: Compiled) => void;
  /** Awaited before every run of the probe: a page waits there until it is seen again. */
  ready?: () => Promise<void>;
  /** Seconds that were waited so; they take nothing of the budget. */
  pausedSeconds?: () => number;
  /** How often the page was left: repetitions made meanwhile do not count. */
  pauses?: () => number;
  /** Called after every round of repetitions, and with `must` before anything that may last or end the program. */
  save?: (calibration: Calibration, must: boolean) => void;
  signal?: AbortSignal;
  /** Indices of samples that look wrong and are measured again before the end (cost/fit/fit.ts). */
  outliers?: (kernel: KernelName, variant: string, samples: readonly Sample[]) => readonly number[];
}

export async function calibrate(options: CalibrateOptions): Promise<Calibration> {
  const { budgetSeconds, device, outliers, seed } = options;
  const yardstickSeconds = YARDSTICK_SHARE * budgetSeconds;
  const stopped = (): boolean => options.signal?.aborted === true;
  const started = clockNow();
  const spent = (): number => clockNow() - started - (options.pausedSeconds?.() ?? 0);
  const { kind: clock, resolutionSeconds, batchSeconds, mostCalls } = await resolutionOf(device);
  const earlier = options.resumeFrom && rawCalibration(options.resumeFrom);
  const overheads = earlier?.overheads ?? (await measureOverheads(device, yardstickSeconds));
  const ceilings = earlier?.ceilings ?? (await measureCeilings(device, overheads.submitSeconds, yardstickSeconds));
  const drift = new Drift(earlier?.probeSeconds ?? []);
  const calibration: Calibration = {
    schema: 'lla-sim/calibration',
    schemaVersion: CALIBRATION_SCHEMA_VERSION,
    program: describeProgram(),
    device: describeDevice(device),
    host: options.host,
    clock: { kind: clock, resolutionSeconds },
    overheads,
    ceilings,
    kernels: [],
    probeSeconds: drift.seconds,
  };
  // The next session need not measure them again, whatever ends this one.
  if (!earlier) options.save?.(calibration, true);
  // The cost of submitting is taken off when samples are read.
  const raw = { clock, submitSeconds: 0 };
  const probe = await openProbe(device, { ...raw, rates: ceilings });
  const read = (sample: Sample): Sample => readSample(sample, { submitSeconds: submitOf(calibration), drift });
  const runProbe = async (): Promise<number> => {
    await options.ready?.();
    const seconds = await probe.run();
    drift.record(seconds);
    return seconds;
  };
  const rules = { ...raw, batchSeconds, mostCalls, seed };
  const reach = {
    floorSeconds: overheads.dispatchSeconds,
    bytesPerSecond: ceilings.readBytesPerSecond,
    operationsPerSecond: ceilings.f32FlopsPerSecond,
  };
  const bounded = Number.isFinite(device.bounds.dispatchSeconds);
  const compile = async (tracks: readonly Track[], compilers: () => Promise<readonly Device[]>): Promise<void> => {
    const others = await compilers();
    const untilSeconds = spent() + COMPILE.share * (budgetSeconds - spent());
    try {
      await compileAhead(tracks, {
        devices: [device, ...others],
        now: spent,
        untilSeconds,
        most: Math.floor(budgetSeconds / COMPILE.secondsEach),
        stopped,
        reach,
        onPipeline: ({ kernel, variant }) =>
          options.onCompiled?.({ kernel, variant, elapsedSeconds: spent(), secondsLeft: budgetSeconds - spent() }),
      });
    } finally {
      for (const other of others) other.close();
    }
  };
  const measure = async (
    calls: readonly WeightedCall[],
    until: number,
    from: Calibration | undefined,
    compilers: CalibrateOptions['compilers'],
  ): Promise<void> => {
    const tracks = planTracks(device, calibration, calls, from, options);
    if (compilers) await compile(tracks, compilers);
    const visits = new Visits(tracks, drift, {
      now: spent,
      budgetSeconds: until,
      stopped,
      secondsPerVisit: (budgetSeconds * POINT_SHARE) / VISITS,
      openBytes: device.bounds.pointBytes,
      open: async (track, shape, known) =>
        openPoint(
          device,
          permitted(device, track, { kernel: track.kernel, variant: track.variant, shape }, ceilings),
          rules,
          known,
          tuningOptions(track.entry.tuning),
        ),
      probe: runProbe,
      driftRetried: clock === 'processor' ? DRIFT_RETRIED.processor : DRIFT_RETRIED.usual,
      choose: (list) => {
        const next = nextPoint(list, reach);
        return next && bounded && samplesOf(next.track).length === 0 ? { ...next, index: lightest(next.track) } : next;
      },
      ...(bounded ? { mostFailures: MOST_FAILURES } : {}),
      ...(options.pauses ? { pauses: options.pauses } : {}),
      read,
      save: (must) => options.save?.(calibration, must),
      visited: (track, gap) =>
        options.onProgress?.({
          kernel: track.kernel,
          variant: track.variant,
          samples: samplesOf(track).length,
          left: track.candidates.length,
          elapsedSeconds: spent(),
          budgetSeconds,
          secondsLeft: secondsLeft(spent(), budgetSeconds, tracks),
          gap,
        }),
      outliers: (track, samples) =>
        (until === budgetSeconds && outliers?.(track.kernel, track.variant, samples.map(read))) || [],
    });
    await visits.run();
  };
  try {
    for (let i = 0; i < FIRST_PROBES && !stopped(); i++) await runProbe();
    const compilers = budgetSeconds >= COMPILE.fromSeconds ? options.compilers : undefined;
    // Kernels of a first list would be compiled one by one.
    const lists = compilers ? options.calls.slice(-1) : options.calls;
    let from = earlier;
    for (const [i, list] of lists.entries()) {
      if (stopped()) break;
      const calls = list();
      const hasAll = options.kernels?.every((kernel) => calls.some((call) => call.kernel === kernel)) ?? true;
      const last = i === lists.length - 1 || (budgetSeconds < LISTS_FROM_SECONDS && hasAll);
      const first = spent() + Math.min(FIRST_LIST.seconds, FIRST_LIST.share * budgetSeconds);
      await measure(calls, last ? budgetSeconds : Math.min(budgetSeconds, first), from, compilers);
      if (last) break;
      from = { ...calibration };
    }
  } finally {
    probe.free();
  }
  return calibration;
}

/**
 * Seconds until the calibration ends: what is left of the budget, or less where few candidates are left and nothing
 * else is to be done. The budget's end is certain, because remaining time goes to the least certain points.
 */
export function secondsLeft(
  elapsed: number,
  budget: number,
  tracks: readonly Pick<Track, 'candidates' | 'entry'>[],
): number {
  const nothing = tracks.every((t) => t.candidates.length === 0 && t.entry.samples.length === 0);
  return nothing ? 0 : Math.max(0, budget - elapsed);
}
