/**
 * Compares with a calibration that was made earlier, by the share of the ceilings that a call reached then and reaches
 * now. That cancels a machine that is slower as a whole; it is weaker than measuring two versions in turn, because
 * noise that differed between the two times does not cancel.
 */
import { UserError, show } from '../../errors.js';
import type { Device } from '../../gpu/index.js';
import { kernelHash } from '../../kernels/source.js';
import { KERNELS, workOf, type KernelCall, type KernelName } from '../../kernels/registry.js';
import type { Calibration, Sample } from '../../schema/calibration.js';
import { obstacle } from '../measure.js';
import { median, quantile } from '../../statistics.js';
import { ratesOf, type BenchResult } from './report.js';
import { prepareTimed, type TimeOptions } from './roofline.js';
import { openYardsticks, type Yardsticks } from '../ceilings.js';
import { interleave } from '../interleave.js';
import { correctedSeconds } from '../../schema/drift.js';
import { midmean, randomFrom, verdictOf, type Interval } from './statistics.js';

type Ceilings = Calibration['ceilings'];

export const WEAKER =
  'weaker: measured at another time, so only shares of the ceilings are compared; compare a git revision or a folder to measure both in turn';

/** Calls slower than this are left out: a batch of them outlasts any phase of quiet. */
const LONGEST_SECONDS = 0.1;
/** Samples of a kernel and variant that are measured again: these shares of them, by time. */
const PICKED = [1 / 3, 5 / 6];
const RESAMPLES = 1000;
/** Compiling, filling and checking take about as long as the repetitions. */
const SAMPLING_SHARE = 0.5;

export interface EarlierCall extends KernelCall {
  readonly earlier: Sample;
  readonly sameSource: boolean;
}

/**
 * The calls of a calibration that are measured again: for each kernel and variant one of middle length and a long one.
 */
export function earlierCalls(
  device: Device,
  calibration: Calibration,
  kernels: readonly KernelName[] | null,
): EarlierCall[] {
  return calibration.kernels.flatMap(({ kernel: name, sourceHash, samples }) => {
    const kernel = name as KernelName;
    if (kernels !== null && !kernels.includes(kernel)) return [];
    const sameSource = kernelHash(kernel) === sourceHash;
    const variants = [...new Set(samples.map((s) => s.variant))];
    return variants.flatMap((variant) => {
      const fit = samples
        .filter(
          (s) =>
            s.variant === variant &&
            KERNELS[kernel].variants.includes(variant) &&
            KERNELS[kernel].dims.every((d) => s.shape[d] !== undefined) &&
            median(s.seconds) <= LONGEST_SECONDS &&
            obstacle(device, { kernel, variant, shape: s.shape }) === null,
        )
        .sort((a, b) => median(a.seconds) - median(b.seconds));
      const picked = new Set(PICKED.map((share) => fit[Math.round(share * (fit.length - 1))]));
      return [...picked]
        .filter((s) => s !== undefined)
        .map((earlier) => ({ kernel, variant, shape: earlier.shape, earlier, sameSource }));
    });
  });
}

/** @throws UserError for a calibration of another device: its shares say nothing about this one */
export function requireSameDevice(device: Device, calibration: Calibration, file: string): void {
  const { description, backend } = calibration.device;
  if (calibration.device.device !== device.description.device || backend !== device.description.backend) {
    throw new UserError(
      `--against ${show(file)} was measured on ${show(description)} (${backend}), this is ${show(device.description.description)} (${device.description.backend})`,
      'calibrate this device, or compare a git revision or a folder',
    );
  }
}

/** Rounds of a call and its ceilings; the interval of fewer says little. */
const LEAST_ROUNDS = 12;
const MOST_ROUNDS = 60;
/** A ceiling beside one call runs for a moment only: a fraction of the work of a ceiling measured alone. */
const YARDSTICK_SCALE = 0.05;

const clockNow = (): number => Number(process.hrtime.bigint()) * 1e-9;

/**
 * Measures the calls again, each in turn with the ceiling that bounds it, so that both see the machine in the same
 * state.
 */
export async function compareShares(
  device: Device,
  calibration: Calibration,
  options: Omit<TimeOptions, 'calls'> & { readonly calls: readonly EarlierCall[]; readonly threshold: number },
): Promise<BenchResult[]> {
  const yardsticks = await openYardsticks(device, options.submitSeconds, YARDSTICK_SCALE);
  const started = clockNow();
  const results: BenchResult[] = [];
  try {
    for (const [done, call] of options.calls.entries()) {
      options.onProgress?.(call, done, options.calls.length);
      const left = options.seconds - (clockNow() - started);
      results.push(
        await compareCall(device, calibration, yardsticks, call, {
          ...options,
          seconds: Math.max(0, left / (options.calls.length - done)),
        }),
      );
    }
  } finally {
    yardsticks.free();
  }
  return results;
}

async function compareCall(
  device: Device,
  calibration: Calibration,
  yardsticks: Yardsticks,
  call: EarlierCall,
  options: Omit<TimeOptions, 'calls'> & { readonly threshold: number },
): Promise<BenchResult> {
  const tuning = calibration.kernels.find((k) => k.kernel === call.kernel)?.tuning;
  const ready = await prepareTimed(device, call, {
    ...options,
    ...(tuning ? { tuning: { [call.kernel]: tuning } } : {}),
  });
  if ('state' in ready) return ready;
  try {
    const begun = correctedSeconds(call.earlier);
    const { boundBy } = ratesOf(workOf(call), median(begun), calibration.ceilings);
    const { run, work } = yardsticks.kinds.get(boundBy) as { run: () => Promise<number>; work: number };
    const [ceiling = [], now = []] = await interleave([run, ready.measure], {
      seconds: SAMPLING_SHARE * options.seconds,
      leastRounds: LEAST_ROUNDS,
      mostRounds: MOST_ROUNDS,
      seed: options.seed,
      clockNow,
    });
    const comparison = shareRatio({
      call,
      then: begun,
      now,
      ceilingsThen: calibration.ceilings,
      ratesNow: ceiling.map((s) => work / s),
      seed: options.seed,
    });
    const { kernel, variant, shape, sameSource } = call;
    return {
      kernel,
      variant,
      shape,
      state: 'shares',
      sameSource,
      ...comparison,
      verdict: verdictOf(comparison.ratio, options.threshold),
      seconds: now,
      rates: ratesOf(workOf(call), comparison.medianSeconds.now, options.ceilings),
    };
  } finally {
    ready.prepared.free();
  }
}

interface ShareInput {
  readonly call: KernelCall;
  /** Seconds a call, each repetition. */
  readonly then: readonly number[];
  /** The same now, each round. */
  readonly now: readonly number[];
  readonly ceilingsThen: Ceilings;
  /** Rate of the ceiling that bounded the call then, in the rounds of `now`: bytes or operations a second. */
  readonly ratesNow: readonly number[];
  readonly seed: number;
}

/**
 * Share of the ceiling then over the share now. Times of now are taken relative to the ceiling of the same round before
 * any statistics, so that a slow phase shows in neither; the interval resamples rounds of now and repetitions of then
 * independently.
 */
export function shareRatio(input: ShareInput): {
  medianSeconds: { before: number; now: number };
  rooflineShare: { before: number; now: number };
  ratio: Interval;
} {
  const work = workOf(input.call);
  const medianSeconds = { before: median(input.then), now: median(input.now) };
  const before = ratesOf(work, medianSeconds.before, input.ceilingsThen);
  // The roofline that bound the call then is the yardstick at both times.
  const amount = before.boundBy === 'read' ? work.readBytes + work.writeBytes : work.flops;
  const logShares = input.now.map((seconds, i) => Math.log(amount / seconds / (input.ratesNow[i] as number)));
  const random = randomFrom(input.seed);
  const draw = (values: readonly number[]): number[] =>
    values.map(() => values[Math.floor(random() * values.length)] as number);
  const centre = midmean(logShares);
  const estimate = before.rooflineShare / Math.exp(centre);
  const factors = Float64Array.from(
    { length: RESAMPLES },
    () => Math.exp(centre - midmean(draw(logShares))) / (median(draw(input.then)) / medianSeconds.before),
  ).sort();
  return {
    medianSeconds,
    rooflineShare: { before: before.rooflineShare, now: Math.exp(centre) },
    ratio: {
      estimate,
      low: Math.min(estimate, estimate * quantile(factors, 0.025)),
      high: Math.max(estimate, estimate * quantile(factors, 0.975)),
    },
  };
}
