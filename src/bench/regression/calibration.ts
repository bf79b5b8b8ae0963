/**
 * Compares with a calibration that was made earlier, by the share of the ceilings that a call reached then and reaches now.
 * That cancels a machine that is slower as a whole; it is weaker than measuring two versions in turn, because noise that
 * differed between the two times does not cancel.
 */
import { UserError, show } from '../../errors.js';
import type { Device } from '../../gpu/index.js';
import { kernelHash } from '../../schedule/kernel-source.js';
import { workOf, type KernelCall, type KernelName } from '../../schedule/kernels.js';
import type { Calibration, Sample } from '../../schema/calibration.js';
import { obstacle } from '../measure.js';
import { median } from '../timing.js';
import { ratesOf, type BenchResult } from './report.js';
import { timeCall, type TimeOptions } from './roofline.js';
import { quantile, randomFrom, verdictOf, type Interval } from './statistics.js';

type Ceilings = Calibration['ceilings'];

export const WEAKER = 'weaker: measured at another time, so only shares of the ceilings are compared; compare a git revision or a folder to measure both in turn';

/** Calls slower than this are left out: a batch of them outlasts any phase of quiet. */
const LONGEST_SECONDS = 0.1;
/** Samples of a kernel and variant that are measured again: these shares of them, by time. */
const PICKED = [1 / 3, 5 / 6];
const RESAMPLES = 1000;

export interface EarlierCall extends KernelCall {
  readonly earlier: Sample;
  readonly sameSource: boolean;
}

/** What of a calibration is measured again: for each kernel and variant a middling and a long call. */
export function earlierCalls(device: Device, calibration: Calibration, kernels: readonly KernelName[] | null): EarlierCall[] {
  return calibration.kernels.flatMap(({ kernel: name, sourceHash, samples }) => {
    const kernel = name as KernelName;
    if (kernels !== null && !kernels.includes(kernel)) return [];
    const sameSource = kernelHash(kernel) === sourceHash;
    const variants = [...new Set(samples.map((s) => s.variant))];
    return variants.flatMap((variant) => {
      const fit = samples
        .filter((s) => s.variant === variant && median(s.seconds) <= LONGEST_SECONDS && obstacle(device, { kernel, variant, shape: s.shape }) === null)
        .sort((a, b) => median(a.seconds) - median(b.seconds));
      const picked = new Set(PICKED.map((share) => fit[Math.round(share * (fit.length - 1))]));
      return [...picked].filter((s) => s !== undefined).map((earlier) => ({ kernel, variant, shape: earlier.shape, earlier, sameSource }));
    });
  });
}

/** @throws UserError for a calibration of another device: its shares say nothing about this one */
export function requireSameDevice(device: Device, calibration: Calibration, file: string): void {
  const { description, backend } = calibration.device;
  if (calibration.device.device !== device.description.device || backend !== device.description.backend) {
    throw new UserError(`--against ${show(file)} was measured on ${show(description)} (${backend}), this is ${show(device.description.description)} (${device.description.backend})`, 'calibrate this device, or compare a git revision or a folder');
  }
}

/** Measures the calls again. `after`: ceilings measured once more when all is done; what they moved widens the intervals. */
export async function compareShares(device: Device, calibration: Calibration, options: Omit<TimeOptions, 'calls'> & { readonly calls: readonly EarlierCall[]; readonly threshold: number }, after: () => Promise<Ceilings>): Promise<BenchResult[]> {
  const samples: { call: EarlierCall; sample: Awaited<ReturnType<typeof timeCall>> }[] = [];
  for (const [done, call] of options.calls.entries()) {
    options.onProgress?.(call, done, options.calls.length);
    samples.push({ call, sample: await timeCall(device, call, options) });
  }
  const ends = [options.ceilings, await after()];
  return samples.map(({ call, sample }): BenchResult => {
    if ('state' in sample) return sample;
    const comparison = shareRatio({ call, then: call.earlier.seconds, now: sample.seconds, ceilingsThen: calibration.ceilings, ceilingsNow: ends, seed: options.seed });
    const { kernel, variant, shape, sameSource } = call;
    return {
      kernel, variant, shape, state: 'shares', sameSource, ...comparison,
      verdict: verdictOf(comparison.ratio, options.threshold), seconds: sample.seconds, rates: ratesOf(workOf(call), comparison.medianSeconds.now, options.ceilings),
    };
  });
}

interface ShareInput {
  readonly call: KernelCall;
  /** Seconds a call, each repetition. */
  readonly then: readonly number[];
  readonly now: readonly number[];
  readonly ceilingsThen: Ceilings;
  /** Measured before and after. */
  readonly ceilingsNow: readonly Ceilings[];
  readonly seed: number;
}

/**
 * Share of the ceiling then over the share now, by medians. The interval resamples both lists of times independently and
 * spans what the ceilings moved in the meantime.
 */
export function shareRatio(input: ShareInput): { medianSeconds: { before: number; now: number }; rooflineShare: { before: number; now: number }; ratio: Interval } {
  const work = workOf(input.call);
  const medianSeconds = { before: median(input.then), now: median(input.now) };
  const before = ratesOf(work, medianSeconds.before, input.ceilingsThen);
  // The roofline that bound the call then is the yardstick at both times.
  const share = (c: Ceilings): number => {
    const r = ratesOf(work, medianSeconds.now, c);
    return before.boundBy === 'read' ? r.readShare : r.f32Share;
  };
  const shares = input.ceilingsNow.map(share);
  const centre = Math.exp(shares.reduce((sum, s) => sum + Math.log(s), 0) / shares.length);
  const random = randomFrom(input.seed);
  const resampled = (values: readonly number[]): number => median(values.map(() => values[Math.floor(random() * values.length)] as number));
  const factors = Float64Array.from({ length: RESAMPLES }, () => resampled(input.now) / medianSeconds.now / (resampled(input.then) / medianSeconds.before)).sort();
  const estimate = before.rooflineShare / centre;
  return {
    medianSeconds,
    rooflineShare: { before: before.rooflineShare, now: centre },
    ratio: {
      estimate,
      low: Math.min(estimate, (before.rooflineShare / Math.max(...shares)) * quantile(factors, 0.025)),
      high: Math.max(estimate, (before.rooflineShare / Math.min(...shares)) * quantile(factors, 0.975)),
    },
  };
}
