/**
 * Measures a device: ceilings, overheads, then kernel calls until the time is spent. Every repetition is saved as it
 * ends; what cannot be measured is kept as a gap with its reason.
 */
import { best } from '../best.js';
import { isDeepStrictEqual } from 'node:util';
import { IMPLEMENTED, openDevice, type AdapterOptions, type Device } from '../gpu/index.js';
import type { Tuning } from '../kernels/launch.js';
import { kernelHash } from '../kernels/source.js';
import { workOf, type KernelCall, type KernelName } from '../kernels/registry.js';
import type { Shape } from '../kernels/spec.js';
import {
  CALIBRATION_SCHEMA_VERSION,
  type Calibration,
  type KernelCalibration,
  type Sample,
} from '../schema/calibration.js';
import { measureCeilings, measureOverheads } from './ceilings.js';
import { describeDevice, describeHost, describeProgram } from './host.js';
import { launchOf, obstacle, openBytes, openPoint, tuningOptions } from './measure.js';
import { Drift, openProbe } from './probe.js';
import { farthest } from './spread.js';
import type { Clock } from './timing.js';
import { median } from '../statistics.js';
import { randomFrom } from './regression/statistics.js';
import { mix } from '../hash.js';
import { samplesOf, UNFINISHED, unfinishedOf, Visits, type Track } from './visits.js';

/**
 * Calls that would take longer than this, or than this share of the budget, are left out: they would take the time of
 * many others.
 */
const LONGEST_CALL_SECONDS = 3;
const LONGEST_CALL_SHARE = 0.0007;
/** Real kernels reach some fraction of the roofline; this one is assumed when a point's cost is estimated. */
const ASSUMED_EFFICIENCY = 0.1;
/** A point's raw samples take at most this share of the whole budget. */
const POINT_SHARE = 0.0015;
/** Each point is visited at least twice; a visit takes this part of the time of a point. */
const VISITS = 2;
/** Runs of the probe before the first point: enough for a first reference. */
const FIRST_PROBES = 7;
const SPREAD_FIRST = 5;
/** More points than this cost planning more than they add: predicting a call takes time with their square. */
const MOST_POINTS = 96;
const MOST_POINTS_SMALL = 28;
/** Minimum weight of a kernel with a small share of a step, relative to the largest: a fit still needs a few points. */
const LEAST_SHARE = 1 / 60;
/** Kernels with at least this share of the largest weight may have many points. */
const LARGE_SHARE = 0.05;
/**
 * Number of candidates that are drawn for the next point, with a probability that grows with their share, above a
 * floor.
 */
const DRAWN_CANDIDATES = 16;
const LEAST_DRAWN_SHARE = 1 / 400;

/** Assumed time of a visit for each session that ended while the track's first point was prepared. */
const UNFINISHED_SECONDS = 30;
/** What a first list of calls gets, at most: seconds, and share of the budget. */
const FIRST_LIST = { seconds: 8, share: 0.05 };

/** A call, and how much the time of steps depends on it (bench/anchors.ts). */
type WeightedCall = KernelCall & { readonly share?: number };

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

export interface CalibrateOptions {
  budgetSeconds: number;
  seed: number;
  /**
   * Lists of calls of real schedules (bench/anchors.ts), each made when it is due. All but the last are measured for a
   * few seconds only, so that there is something to save before a long list is made. Shapes of all published models
   * unless given.
   */
  calls: readonly (() => readonly WeightedCall[])[];
  /** Only these kernels are measured, what is resumed of others is kept; all that are implemented unless given. */
  kernels?: readonly KernelName[];
  adapter?: AdapterOptions;
  /** A device that is open already; stays open. Otherwise one is opened and closed. */
  device?: Device;
  /** Values of tunable constants by kernel (bench/tune.ts); the planner's own for the others. */
  tuning?: Readonly<Partial<Record<KernelName, Tuning>>>;
  /** An earlier calibration of this device (sameDevice), to go on with. Its ceilings and overheads are kept. */
  resumeFrom?: Calibration;
  onProgress?: (progress: CalibrationProgress) => void;
  /** Called after every round of repetitions, and with `must` before anything that may last or end the program. */
  save?: (calibration: Calibration, must: boolean) => void;
  signal?: AbortSignal;
  /**
   * Index of the candidate to measure next, once the first points are spread (cost/fit-active.ts). Farthest-point
   * unless given.
   */
  nextPoint?: (kernel: KernelName, variant: string, samples: readonly Sample[], candidates: readonly Shape[]) => number;
  /** Indices of samples that look wrong and are measured again before the end (cost/fit-active.ts). */
  outliers?: (kernel: KernelName, variant: string, samples: readonly Sample[]) => readonly number[];
}

const now = (): number => Number(process.hrtime.bigint()) * 1e-9;
const keyOf = (shape: Shape): string => JSON.stringify(Object.entries(shape).sort(([a], [b]) => (a < b ? -1 : 1)));

export async function calibrate(options: CalibrateOptions): Promise<Calibration> {
  const device = options.device ?? (await openDevice(options.adapter));
  try {
    return await calibrateOn(device, options);
  } finally {
    if (!options.device) device.close();
  }
}

async function calibrateOn(device: Device, options: CalibrateOptions): Promise<Calibration> {
  const started = now();
  const clock: Clock = device.hasTimestamps ? 'gpu-timestamp' : 'wall';
  const earlier = options.resumeFrom;
  const overheads = earlier?.overheads ?? (await measureOverheads(device));
  const ceilings = earlier?.ceilings ?? (await measureCeilings(device, overheads.submitSeconds));
  const calibration: Calibration = {
    schema: 'lla-sim/calibration',
    schemaVersion: CALIBRATION_SCHEMA_VERSION,
    program: describeProgram(),
    device: describeDevice(device),
    host: describeHost(),
    clock: { kind: clock, resolutionSeconds: 1e-9 },
    overheads,
    ceilings,
    kernels: [],
  };
  // The next session need not measure them again, whatever ends this one.
  if (!earlier) options.save?.(calibration, true);
  else if (earlier.probe) calibration.probe = earlier.probe;
  const probe = await openProbe(device, { clock, submitSeconds: overheads.submitSeconds });
  const drift = new Drift();
  const runProbe = async (): Promise<number> => {
    const seconds = await probe.run();
    drift.record(seconds);
    return seconds;
  };
  const rules = { clock, submitSeconds: overheads.submitSeconds, seed: options.seed };
  const { budgetSeconds } = options;
  const measure = async (
    calls: readonly WeightedCall[],
    until: number,
    from: Calibration | undefined,
  ): Promise<void> => {
    const tracks = planTracks(device, calibration, calls, from, options);
    const visits = new Visits(tracks, drift, {
      now: () => now() - started,
      budgetSeconds: until,
      stopped: () => options.signal?.aborted ?? false,
      secondsPerVisit: (budgetSeconds * POINT_SHARE) / VISITS,
      openBytes: openBytes(device),
      open: (track, shape, known) =>
        openPoint(
          device,
          { kernel: track.kernel, variant: track.variant, shape },
          rules,
          known,
          tuningOptions(track.entry.tuning),
        ),
      probe: runProbe,
      chooseTrack: leastServed,
      chooseCandidate: (track) => choose(track, options),
      save: (must) => {
        const probe = drift.describe();
        if (probe) calibration.probe = probe;
        options.save?.(calibration, must);
      },
      visited: (track, gap) =>
        options.onProgress?.({
          kernel: track.kernel,
          variant: track.variant,
          samples: samplesOf(track).length,
          left: track.candidates.length,
          elapsedSeconds: now() - started,
          budgetSeconds,
          secondsLeft: secondsLeft(now() - started, budgetSeconds, tracks),
          gap,
        }),
      outliers: (track, samples) =>
        (until === budgetSeconds && options.outliers?.(track.kernel, track.variant, samples)) || [],
    });
    for (const { samples } of calibration.kernels)
      for (const sample of samples) visits.adopt(sample, from?.probe?.referenceSeconds ?? null);
    await visits.run();
  };
  try {
    const stopped = (): boolean => options.signal?.aborted === true;
    for (let i = 0; i < FIRST_PROBES && !stopped(); i++) await runProbe();
    const lists = options.calls;
    let from = earlier;
    for (const [i, list] of lists.entries()) {
      if (stopped()) break;
      const last = i === lists.length - 1;
      const first = now() - started + Math.min(FIRST_LIST.seconds, FIRST_LIST.share * budgetSeconds);
      await measure(list(), last ? budgetSeconds : Math.min(budgetSeconds, first), from);
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

/**
 * The track whose next point narrows the intervals of steps most for its time. A kernel's error falls about as 1/n with
 * n points, so the track with the smallest n² · seconds / share is next.
 */
function leastServed(tracks: readonly Track[]): Track | undefined {
  const largest = tracks.reduce((most, t) => Math.max(most, t.share), Number.MIN_VALUE);
  const visitSeconds = (t: Track): number =>
    t.visitSeconds.length > 0 ? median(t.visitSeconds) : 1 + UNFINISHED_SECONDS * unfinishedOf(t);
  const served = (t: Track): number =>
    ((samplesOf(t).length + 0.5) ** 2 * visitSeconds(t)) / Math.max(LEAST_SHARE, t.share / largest);
  const full = (t: Track): boolean =>
    samplesOf(t).length >= (t.share >= LARGE_SHARE * largest ? MOST_POINTS : MOST_POINTS_SMALL);
  return tracks
    .filter((t) => t.candidates.length > 0 && !full(t))
    .reduce<Track | undefined>((least, t) => (!least || served(t) < served(least) ? t : least), undefined);
}

function choose(track: Track, options: CalibrateOptions): number {
  const samples = samplesOf(track);
  const { candidates } = track;
  if (samples.length < SPREAD_FIRST || !options.nextPoint) {
    const tried = [...samples, ...track.entry.gaps.filter((g) => g.variant === track.variant)].map((s) => s.shape);
    const typical = median(candidates.map((c) => c.share));
    return farthest(
      tried,
      candidates.map((c) => c.shape),
      (i) => (candidates[i] as Track['candidates'][number]).share > typical,
    );
  }
  // Every other point is the call with the largest share of a step: drawing alone leaves some of these out.
  if (samples.length % 2 === 0)
    return candidates.indexOf(best(candidates, (c) => c.share) as Track['candidates'][number]);
  const drawn = drawByShare(candidates, DRAWN_CANDIDATES, randomFrom(mix(options.seed + samples.length)));
  return drawn[
    options.nextPoint(
      track.kernel,
      track.variant,
      samples,
      drawn.map((i) => (candidates[i] as Track['candidates'][number]).shape),
    )
  ] as number;
}

/** Indices of at most `count` candidates, drawn without putting back, by their share (Efraimidis & Spirakis 2006). */
export function drawByShare(
  candidates: readonly { readonly share: number }[],
  count: number,
  random: () => number,
): number[] {
  const largest = candidates.reduce((most, c) => Math.max(most, c.share), Number.MIN_VALUE);
  const keys = candidates.map(({ share }, i) => ({
    i,
    key: Math.log(random()) / Math.max(LEAST_DRAWN_SHARE, share / largest),
  }));
  return keys
    .sort((a, b) => b.key - a.key)
    .slice(0, count)
    .map(({ i }) => i);
}

/** Entries and candidates of every kernel and variant, with the samples of `from` in place. */
function planTracks(
  device: Device,
  calibration: Calibration,
  calls: readonly WeightedCall[],
  from: Calibration | undefined,
  options: CalibrateOptions,
): Track[] {
  const kernels = (options.kernels ?? IMPLEMENTED).filter((k) => IMPLEMENTED.includes(k));
  const resumed = from?.kernels ?? [];
  calibration.kernels = [];
  const longest = Math.min(LONGEST_CALL_SECONDS, options.budgetSeconds * LONGEST_CALL_SHARE);
  const tracks = new Map<string, Track>();
  const seen = new Map<string, Sample | null>();
  const entries = new Map<KernelName, KernelCalibration>();
  for (const kernel of kernels) {
    const old = resumed.find((k) => k.kernel === kernel);
    const tuning = options.tuning?.[kernel] ?? old?.tuning;
    const samples = old ? samplesOfToday(device, old, tuning) : [];
    const entry: KernelCalibration = {
      kernel,
      sourceHash: kernelHash(kernel),
      samples: samples.map((sample) => ({ ...sample, seconds: [...sample.seconds] })),
      // Others are tried again: the driver's limits may have changed.
      gaps: (old?.gaps ?? []).filter((gap) => gap.reason === UNFINISHED),
      predictors: samples.length > 0 ? { ...old?.predictors } : {},
      ...(tuning ? { tuning } : {}),
    };
    for (const sample of entry.samples) seen.set(`${kernel} ${sample.variant} ${keyOf(sample.shape)}`, sample);
    entries.set(kernel, entry);
    calibration.kernels.push(entry);
  }
  // Of kernels that are not asked for everything is kept as it is.
  for (const old of resumed)
    if (!(kernels as readonly string[]).includes(old.kernel))
      calibration.kernels.push({ ...old, samples: old.samples.map((sample) => ({ ...sample })) });
  const place = ({ kernel }: KernelCalibration): number => (IMPLEMENTED as readonly string[]).indexOf(kernel);
  calibration.kernels.sort((a, b) => place(a) - place(b));
  const trackOf = ({ kernel, variant }: KernelCall, entry: KernelCalibration): Track => {
    const id = `${kernel} ${variant}`;
    const track = tracks.get(id) ?? { kernel, variant, entry, candidates: [], resumed: [], share: 0, visitSeconds: [] };
    tracks.set(id, track);
    return track;
  };
  const missed = new Missed();
  const offer = ({ share = 0, ...call }: KernelCall & { readonly share?: number }): void => {
    const entry = entries.get(call.kernel);
    const key = `${call.kernel} ${call.variant} ${keyOf(call.shape)}`;
    if (!entry) return;
    const known = seen.get(key);
    seen.set(key, null);
    if (known) trackOf(call, entry).resumed.push({ sample: known, share });
    if (known !== undefined) return;
    const reason = obstacle(device, call, tuningOptions(entry.tuning)) ?? tooLong(call, calibration.ceilings, longest);
    if (reason !== null) {
      missed.add(entry, call, reason);
      return;
    }
    const track = trackOf(call, entry);
    track.candidates.push({ shape: call.shape, share });
    track.share = Math.hypot(track.share, Math.sqrt(share));
  };
  for (const call of calls) offer(call);
  missed.record();
  return [...tracks.values()];
}

/**
 * Shapes that schedules ask for and this device or budget does not allow: hundreds, so one gap a variant sums them up.
 */
class Missed {
  private readonly byVariant = new Map<
    string,
    { entry: KernelCalibration; first: KernelCall; reason: string; count: number }
  >();

  add(entry: KernelCalibration, call: KernelCall, reason: string): void {
    const key = `${call.kernel} ${call.variant}`;
    const known = this.byVariant.get(key);
    if (known) known.count++;
    else this.byVariant.set(key, { entry, first: call, reason, count: 1 });
  }

  record(): void {
    for (const { entry, first, reason, count } of this.byVariant.values()) {
      entry.gaps.push({
        variant: first.variant,
        shape: { ...first.shape },
        reason:
          count === 1
            ? reason
            : `${reason} (and ${count - 1} more shapes of ${first.kernel} ${first.variant} likewise)`,
      });
    }
  }
}

/** Samples of today's kernel: samples of another source or other launch constants belong to another kernel. */
function samplesOfToday(device: Device, old: KernelCalibration, tuning: Tuning | undefined): Sample[] {
  const kernel = old.kernel as KernelName;
  if (old.sourceHash !== kernelHash(kernel)) return [];
  return old.samples.filter(({ variant, shape, tuning: launch }) =>
    isDeepStrictEqual(launchOf(device, { kernel, variant, shape }, tuningOptions(tuning)), launch),
  );
}

/**
 * Kernels of an earlier calibration with samples that resuming it would drop.
 * @param tuning new constants by kernel (bench/tune.ts)
 */
export const staleKernels = (
  device: Device,
  earlier: Calibration,
  tuning: Readonly<Partial<Record<KernelName, Tuning>>> = {},
): string[] =>
  earlier.kernels
    .filter(
      (old) => samplesOfToday(device, old, tuning[old.kernel as KernelName] ?? old.tuning).length < old.samples.length,
    )
    .map((old) => old.kernel);

/**
 * How the device at hand differs from the one that a calibration was measured on, in a few words; null where it is the
 * same. Of a software adapter the processor is a part.
 */
export function otherDevice(device: Device, earlier: Calibration): string | null {
  const [old, today] = [earlier.device, device.description];
  for (const part of ['description', 'device', 'driver', 'backend'] as const)
    if (old[part] !== today[part]) return `${part} ${old[part] || 'unknown'}, and this is ${today[part] || 'unknown'}`;
  const { cpu } = describeHost();
  return today.software && earlier.host.cpu !== cpu ? `processor ${earlier.host.cpu}, and this is ${cpu}` : null;
}

/** Why a call would take too long to be worth measuring, or null. */
function tooLong(call: KernelCall, ceilings: Calibration['ceilings'], longest: number): string | null {
  const { readBytes, writeBytes, flops } = workOf(call);
  const seconds =
    Math.max((readBytes + writeBytes) / ceilings.readBytesPerSecond, flops / ceilings.f32FlopsPerSecond) /
    ASSUMED_EFFICIENCY;
  return seconds > longest
    ? `would take about ${seconds.toPrecision(2)} s a call, more than ${longest.toPrecision(2)} s of this budget`
    : null;
}
