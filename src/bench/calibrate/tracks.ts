/** What a calibration has to measure: the candidates of every kernel and variant, and what is known of them already. */
import type { Device } from '../../gpu/device.js';
import type { Tuning } from '../../../kernels/options.js';
import { KERNEL_NAMES, workOf, type KernelCall, type KernelName } from '../../../kernels/registry.js';
import { GpuError } from '../../../kernels/host/errors.js';
import { median } from '../../numbers/statistics.js';
import { kernelHash } from '../../../kernels/source.js';
import type { Shape } from '../../../kernels/spec.js';
import type { Calibration, KernelCalibration, Sample } from '../../schema/calibration.js';
import type { Anchor } from './anchors.js';
import { launchOf, obstacle, tooLongFor, tuningOptions } from '../measure.js';
import { isUnfinished, likewise, samplesOf, type Track } from './visits.js';

/**
 * Calls that would take longer than this, or than this share of the budget, are left out: they would take the time of
 * many others.
 */
const LONGEST_CALL_SECONDS = 3;
const LONGEST_CALL_SHARE = 0.0007;
/** Real kernels reach some fraction of the roofline; this one is assumed when a point's cost is estimated. */
const ASSUMED_EFFICIENCY = 0.1;

/** A call, and how much the time of steps depends on it (bench/calibrate/anchors.ts). */
export type WeightedCall = KernelCall & Partial<Pick<Anchor, 'share'>>;

/** What of a calibration's options decides about its candidates. */
export interface TrackOptions {
  budgetSeconds: number;
  /** Only these kernels are measured, what is resumed of others is kept; all that are implemented unless given. */
  kernels?: readonly KernelName[];
  /** Values of tunable constants by kernel (bench/calibrate/tune.ts); the planner's own for the others. */
  tuning?: Readonly<Partial<Record<KernelName, Tuning>>>;
}

const keyOf = (shape: Shape): string => JSON.stringify(Object.entries(shape).sort(([a], [b]) => (a < b ? -1 : 1)));

/** Entries and candidates of every kernel and variant, with the samples of `from` in place. */
export function planTracks(
  device: Device,
  calibration: Calibration,
  calls: readonly WeightedCall[],
  from: Calibration | undefined,
  options: TrackOptions,
): Track[] {
  const kernels = options.kernels ?? KERNEL_NAMES;
  const resumed = from?.kernels ?? [];
  calibration.kernels = [];
  const longest = Math.min(
    LONGEST_CALL_SECONDS,
    options.budgetSeconds * LONGEST_CALL_SHARE,
    device.bounds.dispatchSeconds,
  );
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
      samples: [...samples],
      // Others are tried again: the driver's limits may have changed.
      gaps: (old?.gaps ?? []).filter((gap) => isUnfinished(gap)),
      predictors: samples.length > 0 ? { ...old?.predictors } : {},
      ...(tuning ? { tuning } : {}),
    };
    for (const sample of entry.samples) seen.set(`${kernel} ${sample.variant} ${keyOf(sample.shape)}`, sample);
    entries.set(kernel, entry);
    calibration.kernels.push(entry);
  }
  // Of kernels that are not asked for everything is kept as it is.
  for (const old of resumed) if (!(kernels as readonly string[]).includes(old.kernel)) calibration.kernels.push(old);
  const place = ({ kernel }: KernelCalibration): number => (KERNEL_NAMES as readonly string[]).indexOf(kernel);
  calibration.kernels.sort((a, b) => place(a) - place(b));
  const trackOf = ({ kernel, variant }: KernelCall, entry: KernelCalibration): Track => {
    const id = `${kernel} ${variant}`;
    const none = { candidates: [], later: [], resumed: [], visitSeconds: [] };
    const track = tracks.get(id) ?? { kernel, variant, entry, ...none };
    tracks.set(id, track);
    return track;
  };
  /** Shapes that this device or budget does not allow: hundreds, so one gap a variant sums them up. */
  const missed = new Map<string, { entry: KernelCalibration; first: KernelCall; reason: string; count: number }>();
  const offer = ({ share = 0, ...call }: WeightedCall): void => {
    const entry = entries.get(call.kernel);
    const key = `${call.kernel} ${call.variant} ${keyOf(call.shape)}`;
    if (!entry) return;
    const known = seen.get(key);
    seen.set(key, null);
    if (known) trackOf(call, entry).resumed.push({ sample: known, share });
    if (known !== undefined) return;
    const reason = obstacle(device, call, tuningOptions(entry.tuning)) ?? tooLong(call, calibration.ceilings, longest);
    if (reason === null) {
      trackOf(call, entry).candidates.push({ shape: call.shape, share });
      return;
    }
    const id = `${call.kernel} ${call.variant}`;
    const others = missed.get(id) ?? { entry, first: call, reason, count: 0 };
    missed.set(id, { ...others, count: others.count + 1 });
  };
  for (const call of calls) offer(call);
  for (const { entry, first, reason, count } of missed.values())
    entry.gaps.push({
      variant: first.variant,
      shape: { ...first.shape },
      reason: count === 1 ? reason : `${reason}${likewise(count - 1, first)}`,
    });
  return [...tracks.values()];
}

const sameTuning = (a: Tuning | null, b: Tuning): boolean =>
  a !== null &&
  Object.keys(a).length === Object.keys(b).length &&
  Object.entries(a).every(([name, value]) => b[name] === value);

/** Samples of today's kernel: samples of another source or other launch constants belong to another kernel. */
function samplesOfToday(device: Device, old: KernelCalibration, tuning: Tuning | undefined): Sample[] {
  const kernel = old.kernel as KernelName;
  if (old.sourceHash !== kernelHash(kernel)) return [];
  return old.samples.filter(({ variant, shape, tuning: launch }) =>
    sameTuning(launchOf(device, { kernel, variant, shape }, tuningOptions(tuning)), launch),
  );
}

/**
 * Kernels of an earlier calibration with samples that resuming it would drop.
 * @param tuning new constants by kernel (bench/calibrate/tune.ts)
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

/** Why a call would take too long to be worth measuring, or null. */
function tooLong(call: KernelCall, ceilings: Calibration['ceilings'], longest: number): string | null {
  const seconds = ceilingSeconds(call, ceilings) / ASSUMED_EFFICIENCY;
  return seconds > longest
    ? `would take about ${seconds.toPrecision(2)} s a call, more than ${longest.toPrecision(2)} s of this budget`
    : null;
}

type Ceilings = Pick<Calibration['ceilings'], 'readBytesPerSecond' | 'f32FlopsPerSecond'>;

/** Seconds of a call at the device's ceilings. */
function ceilingSeconds(call: KernelCall, ceilings: Ceilings): number {
  const { readBytes, writeBytes, flops } = workOf(call);
  return Math.max((readBytes + writeBytes) / ceilings.readBytesPerSecond, flops / ceilings.f32FlopsPerSecond);
}

/** A shape may take this many times its kernel's slowest share so far: shapes of one kernel scatter by less. */
const SCATTER = 2;

/**
 * The call itself, where the slowest shape of its kernel so far, by its share of the ceilings, lets it be run: a kernel
 * is measured from its lightest shape up, so that dispatches stay short where a device may not be held for long.
 * @throws GpuError `unsupported` where the call would hold the device longer than it may
 */
export function permitted(
  device: Pick<Device, 'bounds'>,
  track: Pick<Track, 'entry' | 'variant'>,
  call: KernelCall,
  ceilings: Ceilings,
): KernelCall {
  const { dispatchSeconds } = device.bounds;
  const slowest = samplesOf(track).reduce(
    (most, s) => Math.max(most, median(s.seconds) / ceilingSeconds({ ...call, shape: s.shape }, ceilings)),
    1,
  );
  const expected = slowest * ceilingSeconds(call, ceilings);
  if (SCATTER * expected > dispatchSeconds) throw new GpuError('unsupported', tooLongFor(expected, dispatchSeconds));
  return call;
}
