/**
 * From what a calibration stores to times: a machine's drift, and the correction for it. Pure functions: the planner
 * and a browser read samples with them too.
 */
import { median } from '../numbers/statistics.js';
import type { Calibration, Sample } from './calibration.js';

/**
 * The reference is the median of the fastest runs, this share of all. So a session that starts on a loaded machine is
 * not measured against the load.
 */
const FASTEST_SHARE = 0.2;

/** All runs of the probe, and the machine's drift by them. */
export class Drift {
  private fastest: number[];
  private reference: number | null = null;

  /** @param seconds of each run, in the order measured */
  constructor(readonly seconds: number[] = []) {
    this.fastest = [...seconds].sort((a, b) => a - b);
  }

  /** Takes in one run of the probe, seconds. */
  record(seconds: number): void {
    this.seconds.push(seconds);
    const at = this.fastest.findIndex((other) => other >= seconds);
    this.fastest.splice(at < 0 ? this.fastest.length : at, 0, seconds);
    this.reference = null;
  }

  /**
   * Time of the probe over its reference; 1 is no drift, as before the first run. The reference moves with new runs.
   */
  relative(seconds: number): number {
    const { fastest } = this;
    if (fastest.length === 0) return 1;
    this.reference ??= median(fastest.slice(0, Math.ceil(FASTEST_SHARE * fastest.length)));
    return seconds / this.reference;
  }

  /** The drift beside a repetition: of both runs around it. @param run place of the one before, null: none */
  beside(run: number | null): number {
    if (run === null) return 1;
    const [before, after] = [this.seconds[run] as number, this.seconds[run + 1] as number];
    return this.relative(Math.sqrt(before * after));
  }

  /** How far the machine went; undefined before the first run. */
  describe(): Calibration['probe'] {
    const { fastest } = this;
    if (fastest.length === 0) return undefined;
    return {
      referenceSeconds: 1 / this.relative(1),
      runs: fastest.length,
      lowDrift: this.relative(fastest[0] as number),
      highDrift: this.relative(fastest.at(-1) as number),
    };
  }
}

/** A time may not come out as nothing, whatever the noise of the overhead that is taken off. */
const SHORTEST_SECONDS = 1e-9;

/** What reading a sample takes: what a submission costs by the clock that timed, and the runs of the probe. */
export interface Reading {
  readonly submitSeconds: number;
  readonly drift: Drift;
}

/** A stored sample as the cost model takes it: times without the cost of submitting, each with its drift. */
export function readSample({ calls, probes, ...sample }: Sample, { submitSeconds, drift }: Reading): Sample {
  if (!probes) {
    // Versions up to 0.1.0 saved files in which the last repetition lacked its drift.
    const { length } = sample.drift ?? sample.seconds;
    return length < sample.seconds.length ? { ...sample, seconds: sample.seconds.slice(0, length) } : sample;
  }
  const net = (seconds: number, of: number | null): number =>
    of === null ? seconds : Math.max(SHORTEST_SECONDS, seconds - submitSeconds / of);
  return {
    ...sample,
    seconds: sample.seconds.map((seconds, i) => net(seconds, calls?.[i] ?? null)),
    drift: probes.map((run) => drift.beside(run)),
  };
}

/** What a submission costs where the clock counts it. */
export const submitOf = ({ clock, overheads }: Pick<Calibration, 'clock' | 'overheads'>): number =>
  clock.kind === 'wall' ? overheads.submitSeconds : 0;

/** A calibration as it was stored, with times and drifts in place of what was measured. */
export function readCalibration({ probeSeconds, ...stored }: Calibration): Calibration {
  const submitSeconds = submitOf(stored);
  const drift = new Drift(probeSeconds?.map((seconds) => Math.max(SHORTEST_SECONDS, seconds - submitSeconds)));
  const probe = stored.probe ?? drift.describe();
  return {
    ...stored,
    ...(probe ? { probe } : {}),
    kernels: stored.kernels.map((k) => ({
      ...k,
      samples: k.samples.map((s) => readSample(s, { submitSeconds, drift })).filter((s) => s.seconds.length > 0),
    })),
  };
}

/** A calibration to go on with, in the form of today: what version 1 stored becomes what it was made of. */
export function rawCalibration(stored: Calibration): Calibration {
  if (stored.schemaVersion === 2) return structuredClone(stored);
  const { probe, ...c } = readCalibration(structuredClone(stored));
  const probeSeconds: number[] = [];
  const runOf = (drift: number | undefined): number | null =>
    drift !== undefined && probe
      ? probeSeconds.push(...Array<number>(2).fill(drift * probe.referenceSeconds + submitOf(c))) - 2
      : null;
  const kernels = c.kernels.map((k) => ({
    ...k,
    samples: k.samples.map(({ drift, flag: _, ...sample }) => ({
      ...sample,
      calls: sample.seconds.map(() => null),
      probes: sample.seconds.map((__, i) => runOf(drift?.[i])),
    })),
  }));
  return { ...c, schemaVersion: 2, probeSeconds, kernels };
}

/** Drift up to this fraction is the probe's own noise: it is recorded and not corrected. */
export const DRIFT_CORRECTED = 0.05;

/**
 * A kernel's time follows a power of the probe's time. This power is used while the kernel has too few repetitions for
 * a fit of its own. Measured over nine kernels on a shared machine (docs/experiments.md): 0.4 for one that computes,
 * 0.9 for one that streams weights.
 */
const DRIFT_EXPONENT = 0.7;
/** Squared log drift, summed over repetitions, that makes a kernel's own exponent weigh as much as that one. */
const EXPONENT_PRIOR = 0.5;
const MOST_EXPONENT = 1.2;
/** Log drifts and times beyond this far from those of their sample count as this far. */
const FARTHEST_LOG = 0.5;

/** Time of a kernel over its time on a machine at its reference, where the probe's is `drift`. */
export const slowdownOf = (drift: number, exponent = DRIFT_EXPONENT): number => drift ** exponent;

/** The exponent with which the times of these samples follow the probe's time, each relative to its sample's mean. */
export function driftExponentOf(samples: readonly Drifted[]): number {
  let [products, squares] = [DRIFT_EXPONENT * EXPONENT_PRIOR, EXPONENT_PRIOR];
  for (const { seconds, drift } of samples) {
    if (!drift || seconds.length < FEW) continue;
    const [x, y] = [centred(drift), centred(seconds)];
    x.forEach((each, i) => {
      products += each * (y[i] as number);
      squares += each ** 2;
    });
  }
  return Math.min(MOST_EXPONENT, Math.max(0, products / squares));
}

/** Logarithms around their mean. */
function centred(values: readonly number[]): number[] {
  const logs = values.map(Math.log);
  const mean = logs.reduce((sum, each) => sum + each, 0) / logs.length;
  return logs.map((each) => Math.min(FARTHEST_LOG, Math.max(-FARTHEST_LOG, each - mean)));
}

/**
 * Repetitions that drifted by less than this are taken alone where there are a few of them. Beyond, kernels slow down
 * differently: a lost core doubles the probe's time and hardly slows a kernel of one workgroup.
 */
const DRIFT_TRUSTED = 0.5;
const FEW = 3;
/** Share of the fastest and of the slowest repetitions that a typical time leaves out. */
const TRIMMED_SHARE = 1 / 8;

/**
 * Raw times, seconds a call, and for each of them the probe's time over its reference, measured beside it; samples of
 * older files have none.
 */
export interface Drifted {
  readonly seconds: readonly number[];
  readonly drift?: readonly number[] | undefined;
}

/**
 * Times of a sample, corrected for the machine's drift, seconds a call; without those that drifted far where there are
 * others. Samples without drift are not corrected.
 * @param exponent of the kernel (driftExponentOf)
 */
export function correctedSeconds(sample: Drifted, exponent = DRIFT_EXPONENT): number[] {
  const { seconds, drift } = sample;
  const away = seconds.map((_, i) => Math.abs((drift?.[i] ?? 1) - 1));
  const enough = away.filter((d) => d <= DRIFT_TRUSTED).length >= FEW;
  return seconds.flatMap((time, i) => {
    const own = away[i] as number;
    if (enough && own > DRIFT_TRUSTED) return [];
    return [own > DRIFT_CORRECTED ? time / slowdownOf(drift?.[i] ?? 1, exponent) : time];
  });
}

/**
 * The typical time among `seconds`, not empty: the geometric mean without the fastest and the slowest eighth. Of a few
 * repetitions on a noisy machine it is a fifth to a third closer to the mean of many than the median is.
 */
export function typicalSeconds(seconds: readonly number[]): number {
  const trimmed = Math.floor(TRIMMED_SHARE * seconds.length);
  const middle = [...seconds].sort((a, b) => a - b).slice(trimmed, seconds.length - trimmed);
  return Math.exp(middle.reduce((sum, each) => sum + Math.log(each), 0) / middle.length);
}
