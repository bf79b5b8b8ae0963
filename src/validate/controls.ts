/**
 * Control points: points of the calibration, measured anew beside what is validated. A machine that is no longer as it was drifts by
 * kernel (what waits for memory and what computes are disturbed apart), which the probe, one small mix of both, cannot tell. Where a
 * kernel's own points take longer than they did, so would a new calibration say.
 */
import { openBytes, openPoint, tuningOptions } from '../bench/measure.js';
import { openProbe, type Probe } from '../bench/probe.js';
import { median } from '../bench/timing.js';
import type { OpenPoint } from '../bench/visits.js';
import { coordinate } from '../cost/predictor.js';
import { GpuError, type Device } from '../gpu/index.js';
import { KERNELS, type KernelCall, type KernelName, type Shape } from '../schedule/kernels.js';
import type { KernelCalibration, Sample } from '../schema/calibration.js';
import { correctedSeconds, typicalSeconds } from '../schema/drift.js';
import type { Calibrated } from './calibrated.js';

/** A sample of the calibration. */
export interface ControlPoint {
  readonly kernel: KernelName;
  readonly sample: Sample;
  /** Of its kernel, where the calibration has one. */
  readonly tuning: KernelCalibration['tuning'];
}

/** One of them, measured anew. */
export interface ControlRow {
  readonly kernel: KernelName;
  readonly variant: string;
  readonly shape: Shape;
  /** A call, corrected for the probe's drift, as all that follows: in the calibration, and now. */
  readonly calibratedSeconds: number;
  readonly measuredSeconds: number;
  readonly repetitions: number;
}

/** A call with the time that it is predicted to take: seconds, or shares of a step. */
export interface Weighed {
  readonly call: KernelCall;
  readonly seconds: number;
}

/** Points longer than this take too long to be measured beside every few steps. */
const LONGEST_SECONDS = 0.25;
/** Of one kernel. */
const MOST_OF_KERNEL = 6;
/** Fewer repetitions than this are not taken alone. */
const FEW_REPETITIONS = 4;

/** Distance of two shapes, octaves summed over the kernel's fields. */
const octavesBetween = (kernel: KernelName, a: Shape, b: Shape): number =>
  KERNELS[kernel].dims.reduce((sum, dim) => sum + Math.abs(coordinate(a[dim] as number) - coordinate(b[dim] as number)), 0);

const least = <T>(items: readonly T[], key: (item: T) => number): T | undefined => items.reduce<T | undefined>((best, one) => (best === undefined || key(one) < key(best) ? one : best), undefined);

/** The calibration's points nearest to the calls that take longest: at most `most`, and of one kernel not all of them. */
export function chooseControls({ calibration, stale }: Pick<Calibrated, 'calibration' | 'stale'>, calls: readonly Weighed[], most: number): ControlPoint[] {
  const chosen: ControlPoint[] = [];
  for (const { call: { kernel, variant, shape } } of [...calls].sort((a, b) => b.seconds - a.seconds)) {
    if (chosen.length >= most) break;
    if (stale.includes(kernel) || chosen.filter((c) => c.kernel === kernel).length >= MOST_OF_KERNEL) continue;
    const entry = calibration.kernels.find((k) => k.kernel === kernel);
    const samples = entry?.samples.filter((s) => s.variant === variant && typicalOf(s) <= LONGEST_SECONDS) ?? [];
    const sample = least(samples, (s) => octavesBetween(kernel, s.shape, shape));
    if (sample && !chosen.some((c) => c.sample === sample)) chosen.push({ kernel, sample, tuning: entry?.tuning });
  }
  return chosen;
}

const typicalOf = (of: Pick<Sample, 'seconds' | 'drift'>): number => typicalSeconds(correctedSeconds(of));

/** Times of a control so far: raw, and the probe's beside them over its reference. */
interface Times {
  readonly seconds: number[];
  readonly drift: number[];
}

interface Control {
  readonly of: ControlPoint;
  /** On the device, where there is room. */
  point: OpenPoint | null;
  readonly all: Times;
  /** Those since the last look. */
  since: Times;
}

const noTimes = (): Times => ({ seconds: [], drift: [] });

/** Drift of kernels, as told at one time. */
export interface KernelDrift {
  /** Time of this call over its time in the calibration's machine, beyond the probe's drift; 1 where no control tells. */
  of(call: KernelCall): number;
}

/** Drift told by ratios of controls: the geometric mean over those of the call's kernel, one nearer by an octave weighing twice as much. */
export function kernelDrift(controls: readonly (ControlPoint & { readonly ratio: number })[]): KernelDrift {
  return {
    of({ kernel, variant, shape }) {
      let [sum, weights] = [0, 0];
      for (const { kernel: own, sample, ratio } of controls) {
        if (own !== kernel) continue;
        const weight = 2 ** -(octavesBetween(kernel, sample.shape, shape) + (sample.variant === variant ? 0 : 1));
        sum += weight * Math.log(ratio);
        weights += weight;
      }
      return weights > 0 ? Math.exp(sum / weights) : 1;
    },
  };
}

/** Drift of everything in `calls`, each weighing as much as it is predicted to take; 1 for none. */
export function driftOf(calls: readonly Weighed[], drift: KernelDrift): number {
  const total = calls.reduce((sum, { seconds }) => sum + seconds, 0);
  return total > 0 ? calls.reduce((sum, { call, seconds }) => sum + seconds * drift.of(call), 0) / total : 1;
}

/**
 * What tells how far the machine has gone from the calibration's: the probe beside every measurement, and control points in turn. Where
 * the operating system puts a buffer makes some percent of a kernel's time, so that points are put on the device anew every now and then.
 */
export class DriftWatch {
  private readonly controls: Control[];
  private next = 0;

  private constructor(
    private readonly device: Device,
    private readonly probe: Probe,
    private readonly rules: Parameters<typeof openPoint>[2],
    points: readonly ControlPoint[],
    /** The probe's time to which drift refers: a calibration's times are those of a machine at its own; without one, this process's first runs. */
    private readonly referenceSeconds: number,
  ) {
    this.controls = points.map((of) => ({ of, point: null, all: noTimes(), since: noTimes() }));
  }

  /** Puts the probe on the device; `renew` puts the points there. The caller frees. */
  static async open(device: Device, { calibration }: Pick<Calibrated, 'calibration'>, points: readonly ControlPoint[], seed: number): Promise<DriftWatch> {
    const rules = { clock: device.hasTimestamps ? 'gpu-timestamp' : 'wall', submitSeconds: calibration.overheads.submitSeconds, seed } as const;
    const probe = await openProbe(device, rules);
    try {
      const first: number[] = [];
      for (let i = 0; i < 7; i++) first.push(await probe.run());
      return new DriftWatch(device, probe, rules, points, calibration.probe?.referenceSeconds ?? median(first));
    } catch (error) {
      probe.free();
      throw error;
    }
  }

  /**
   * Puts the points on the device, elsewhere than before; those for which there is no memory are left out.
   * @throws GpuError for any other failure
   */
  async renew(): Promise<void> {
    this.freePoints();
    let bytes = 0;
    for (const control of this.controls) {
      if (bytes > openBytes(this.device)) return;
      control.point = await this.openControl(control.of);
      bytes += control.point?.bytes ?? 0;
    }
  }

  private async openControl({ kernel, sample, tuning }: ControlPoint): Promise<OpenPoint | null> {
    try {
      return await openPoint(this.device, { kernel, variant: sample.variant, shape: sample.shape }, this.rules, sample, tuningOptions(tuning));
    } catch (error) {
      if (error instanceof GpuError && (error.fault === 'out-of-memory' || error.fault === 'unsupported')) return null;
      throw error;
    }
  }

  /** One run of the probe, seconds. */
  run(): Promise<number> {
    return this.probe.run();
  }

  /** The probe's drift between two runs of it. */
  between(before: number, after: number): number {
    return Math.sqrt(before * after) / this.referenceSeconds;
  }

  /** Measures controls in turn until `seconds` are spent or each had one. */
  async turn(seconds: number): Promise<void> {
    let spent = 0;
    for (let i = 0; i < this.controls.length && spent < seconds; i++) {
      const { point, all, since } = this.controls[this.next++ % this.controls.length] as Control;
      if (!point) continue;
      const before = await this.probe.run();
      const { each, total } = await point.time();
      const drift = this.between(before, await this.probe.run());
      for (const times of [all, since]) {
        times.seconds.push(each);
        times.drift.push(drift);
      }
      spent += total;
    }
  }

  /** Drift by kernel since the last look; a control with too few times since then tells by all of its times. */
  look(): KernelDrift {
    const told = this.controls.flatMap(({ of, all, since }) => {
      const times = since.seconds.length >= FEW_REPETITIONS ? since : all;
      return times.seconds.length === 0 ? [] : [{ ...of, ratio: typicalOf(times) / typicalOf(of.sample) }];
    });
    for (const one of this.controls) one.since = noTimes();
    return kernelDrift(told);
  }

  rows(): ControlRow[] {
    return this.controls.flatMap(({ of: { kernel, sample }, all }) =>
      all.seconds.length === 0 ? [] : [{ kernel, variant: sample.variant, shape: sample.shape, calibratedSeconds: typicalOf(sample), measuredSeconds: typicalOf(all), repetitions: all.seconds.length }]);
  }

  private freePoints(): void {
    for (const control of this.controls) {
      control.point?.free();
      control.point = null;
    }
  }

  free(): void {
    this.freePoints();
    this.probe.free();
  }
}
