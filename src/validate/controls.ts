/**
 * Control points: points of the calibration that are measured again beside the validation. A machine drifts differently
 * for each kernel: memory and arithmetic are disturbed separately. The probe mixes both and cannot separate them. The
 * control points of a kernel show how its times in a new calibration would differ.
 */
import { best } from '../numbers/best.js';
import type { Budget } from '../io/budget.js';
import { openPoint, tuningOptions } from '../bench/measure.js';
import { openProbe, type Probe } from '../bench/probe.js';
import { medianOf } from '../bench/rounds.js';
import { median, sum } from '../numbers/statistics.js';
import type { OpenPoint } from '../bench/calibrate/visits.js';
import { coordinate } from '../cost/predictor.js';
import { GpuError, type Device } from '../gpu/index.js';
import { KERNELS, type KernelCall, type KernelName } from '../../kernels/registry.js';
import type { Shape } from '../../kernels/spec.js';
import type { KernelCalibration, Sample } from '../schema/calibration.js';
import { correctedSeconds, typicalSeconds, type Drifted } from '../schema/drift.js';
import { driftExponents, shapeKey, type Calibrated } from './calibrated.js';

/** A sample of the calibration. */
export interface ControlPoint {
  readonly kernel: KernelName;
  readonly sample: Sample;
  /** Of its kernel, where the calibration has one. */
  readonly tuning: KernelCalibration['tuning'];
}

/** One of them, measured again. */
export interface ControlRow extends Readonly<KernelCall> {
  /** Seconds a call, in the calibration and now, both corrected for the probe's drift. */
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
/** Runs of the probe to which drift refers where the calibration has none. */
const FIRST_PROBES = 7;
/** Kind of a piece of the budget: a point put on the device. */
const CONTROL = 'control point';
/** Fewer repetitions than this are not taken alone. */
const FEW_REPETITIONS = 4;

/** A control of another kernel weighs as much as one of the call's own so many octaves away. */
const OCTAVES_OF_OTHERS = 3;

/** Distance of two shapes, octaves summed over the kernel's fields. */
const octavesBetween = (kernel: KernelName, a: Shape, b: Shape): number =>
  sum(KERNELS[kernel].dims.map((dim) => Math.abs(coordinate(a[dim] as number) - coordinate(b[dim] as number))));

/**
 * The calibration's points nearest to the calls that take longest: at most `most`, and of one kernel not all of them.
 */
export function chooseControls(
  { calibration, stale }: Pick<Calibrated, 'calibration' | 'stale'>,
  calls: readonly Weighed[],
  most: number,
): ControlPoint[] {
  const chosen: ControlPoint[] = [];
  for (const { call } of [...calls].sort((a, b) => b.seconds - a.seconds)) {
    const { kernel, variant, shape } = call;
    if (chosen.length >= most) break;
    if (stale.includes(kernel) || chosen.filter((c) => c.kernel === kernel).length >= MOST_OF_KERNEL) continue;
    const entry = calibration.kernels.find((k) => k.kernel === kernel);
    const samples = entry?.samples.filter((s) => s.variant === variant && median(s.seconds) <= LONGEST_SECONDS) ?? [];
    const sample = best(samples, (s) => -octavesBetween(kernel, s.shape, shape));
    if (sample && !chosen.some((c) => c.sample === sample)) chosen.push({ kernel, sample, tuning: entry?.tuning });
  }
  return chosen;
}

const typicalOf = (of: Drifted, exponent: number): number => typicalSeconds(correctedSeconds(of, exponent));

/** A raw time, and the probe's time beside it over its reference. */
export interface Timed {
  readonly seconds: number;
  readonly drift: number;
}

/** The typical time of several, corrected for the probe's drift with this exponent (schema/drift.ts). */
export const typical = (times: readonly Timed[], exponent: number): number =>
  typicalOf({ seconds: times.map((t) => t.seconds), drift: times.map((t) => t.drift) }, exponent);

/** The exponent of the probe's drift for `calls` together, weighted by their predicted time. */
export const exponentOf = (calls: readonly Weighed[], of: Calibrated['driftExponent']): number =>
  sum(shares(calls).map(({ call, seconds }) => seconds * of(call)));

interface Control {
  readonly of: ControlPoint;
  readonly exponent: number;
  /** On the device, where there is room. */
  point: OpenPoint | null;
  readonly times: Timed[];
  /** How many of them there were at the last look. */
  looked: number;
}

/** Time of a call over its time in the calibration's machine, beyond the probe's drift; 1 without controls. */
export type KernelDrift = (call: KernelCall) => number;

/**
 * Drift of a call from the ratios of controls: their weighted geometric mean. A control of the call's kernel weighs
 * twice as much an octave nearer. Controls of other kernels weigh little each: whatever slows a machine slows all
 * kernels by about as much.
 */
export function kernelDrift(controls: readonly (ControlPoint & { readonly ratio: number })[]): KernelDrift {
  return ({ kernel, variant, shape }) => {
    let [sum, weights] = [0, 0];
    for (const { kernel: own, sample, ratio } of controls) {
      const octaves =
        own === kernel
          ? octavesBetween(kernel, sample.shape, shape) + (sample.variant === variant ? 0 : 1)
          : OCTAVES_OF_OTHERS;
      const weight = 2 ** -octaves;
      sum += weight * Math.log(ratio);
      weights += weight;
    }
    return weights > 0 ? Math.exp(sum / weights) : 1;
  };
}

/** Drift of `calls` together, weighted by their predicted time; 1 for none. */
export function driftOf(calls: readonly Weighed[], drift: KernelDrift): number {
  const total = sum(calls.map(({ seconds }) => seconds));
  return total > 0 ? sum(calls.map(({ call, seconds }) => seconds * drift(call))) / total : 1;
}

/**
 * Measures the machine's drift since the calibration: the probe beside every measurement, and control points in turn. A
 * buffer's address changes a kernel's time by some percent, so points are put on the device again from time to time.
 */
export class DriftWatch {
  private readonly controls: Control[];
  private next = 0;

  private constructor(
    private readonly device: Device,
    private readonly probe: Probe,
    private readonly rules: Parameters<typeof openPoint>[2],
    points: readonly ControlPoint[],
    exponent: Calibrated['driftExponent'],
    /** The probe's time to which drift refers: the calibration's; of another machine or without one, its first runs. */
    private readonly referenceSeconds: number,
  ) {
    this.controls = points.map((of) => ({
      of,
      exponent: exponent({ kernel: of.kernel, variant: of.sample.variant }),
      point: null,
      times: [],
      looked: 0,
    }));
  }

  /** Puts the probe on the device; `renew` puts the points there. The caller frees. */
  static async open(
    device: Device,
    { calibration, difference }: Pick<Calibrated, 'calibration' | 'difference'>,
    points: readonly ControlPoint[],
    seed: number,
  ): Promise<DriftWatch> {
    const rules = { clock: device.clock, submitSeconds: calibration.overheads.submitSeconds, seed };
    const probe = await openProbe(device, rules);
    try {
      const stored = difference === null ? calibration.probe?.referenceSeconds : undefined;
      const reference = stored ?? (await medianOf(FIRST_PROBES, () => probe.run()));
      return new DriftWatch(device, probe, rules, points, driftExponents(calibration), reference);
    } catch (error) {
      probe.free();
      throw error;
    }
  }

  /**
   * Puts the points on the device, at other addresses than before; points for which there is no memory, or no time, are
   * left out.
   * @throws GpuError for any other failure
   */
  async renew(budget: Budget): Promise<void> {
    this.freePoints();
    let bytes = 0;
    for (const control of this.controls) {
      if (bytes > this.device.bounds.pointBytes || !budget.fits(CONTROL)) return;
      control.point = await budget.piece(CONTROL, () => this.openControl(control.of));
      bytes += control.point?.bytes ?? 0;
    }
  }

  private async openControl({ kernel, sample, tuning }: ControlPoint): Promise<OpenPoint | null> {
    try {
      const call = { kernel, variant: sample.variant, shape: sample.shape };
      return await openPoint(this.device, call, this.rules, sample, tuningOptions(tuning));
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

  /** Measures between two runs of the probe. */
  async beside(measure: () => Promise<number>): Promise<Timed> {
    const before = await this.run();
    const seconds = await measure();
    return { seconds, drift: this.between(before, await this.run()) };
  }

  /** Measures controls in turn until `seconds` are spent or each had one. */
  async turn(seconds: number): Promise<void> {
    let spent = 0;
    for (let i = 0; i < this.controls.length && spent < seconds; i++) {
      const { point, times } = this.controls[this.next++ % this.controls.length] as Control;
      if (!point) continue;
      times.push(
        await this.beside(async () => {
          const { each, total } = await point.time();
          spent += total;
          return each;
        }),
      );
    }
  }

  /** Drift by kernel since the last look; a control with too few times since then uses all of its times. */
  look(): KernelDrift {
    const ratios = this.controls.flatMap((control) => {
      const { of, exponent, times, looked } = control;
      const since = times.slice(looked);
      control.looked = times.length;
      if (times.length === 0) return [];
      const now = typical(since.length >= FEW_REPETITIONS ? since : times, exponent);
      return [{ ...of, ratio: now / typicalOf(of.sample, exponent) }];
    });
    return kernelDrift(ratios);
  }

  rows(): ControlRow[] {
    const measured = this.controls.filter(({ times }) => times.length > 0);
    return measured.map(({ of: { kernel, sample }, exponent, times }) => ({
      ...{ kernel, variant: sample.variant, shape: sample.shape },
      calibratedSeconds: typicalOf(sample, exponent),
      measuredSeconds: typical(times, exponent),
      repetitions: times.length,
    }));
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

/** Each call's share of its step or prompt, however long that takes. */
export function shares(calls: readonly Weighed[]): Weighed[] {
  const total = sum(calls.map(({ seconds }) => seconds));
  return calls.map(({ call, seconds }) => ({ call, seconds: seconds / total }));
}

/** Equal calls as one. */
export function together(calls: readonly Weighed[]): Weighed[] {
  const known = new Map<string, Weighed>();
  for (const { call, seconds } of calls) {
    const key = shapeKey(call);
    known.set(key, { call, seconds: seconds + (known.get(key)?.seconds ?? 0) });
  }
  return [...known.values()];
}
