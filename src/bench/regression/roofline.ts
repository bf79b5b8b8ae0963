/** Times this program's kernels and says what share of the device's ceilings they reach. */
import { GpuError, type Device } from '../../gpu/index.js';
import type { KernelCall } from '../../schedule/kernels.js';
import type { Calibration, Sample } from '../../schema/calibration.js';
import { measureCall, obstacle } from '../measure.js';
import { median, type Clock } from '../timing.js';
import { skip } from './compare.js';
import { ratesOf, type BenchResult, type SkippedResult } from './report.js';

export interface TimeOptions {
  readonly calls: readonly KernelCall[];
  readonly clock: Clock;
  readonly submitSeconds: number;
  readonly ceilings: Calibration['ceilings'];
  /** Time for all calls. */
  readonly seconds: number;
  readonly seed: number;
  readonly onProgress?: (call: KernelCall, done: number, total: number) => void;
}

/** Compiling, filling and checking take about as long as the repetitions. */
const SAMPLING_SHARE = 0.5;

export async function timeKernels(device: Device, options: TimeOptions): Promise<BenchResult[]> {
  const results: BenchResult[] = [];
  for (const [done, call] of options.calls.entries()) {
    options.onProgress?.(call, done, options.calls.length);
    const sample = await timeCall(device, call, options);
    if ('state' in sample) {
      results.push(sample);
      continue;
    }
    const medianSeconds = median(sample.seconds);
    results.push({ kernel: call.kernel, variant: call.variant, shape: call.shape, state: 'timed', seconds: sample.seconds, medianSeconds, relativeError: sample.relativeError, rates: ratesOf(sample, medianSeconds, options.ceilings) });
  }
  return results;
}

/** One call, checked and timed as a calibration does it; or why not. */
export async function timeCall(device: Device, call: KernelCall, options: TimeOptions): Promise<Sample | SkippedResult> {
  const reason = obstacle(device, call);
  if (reason !== null) return skip(call, 'unsupported', reason);
  try {
    return await measureCall(device, call, { clock: options.clock, submitSeconds: options.submitSeconds, seed: options.seed, secondsPerPoint: (SAMPLING_SHARE * options.seconds) / options.calls.length });
  } catch (error) {
    if (!(error instanceof GpuError) || error.fault === 'lost') throw error;
    return skip(call, error.fault === 'internal' || error.fault === 'validation' ? 'wrong' : 'unsupported', error.message);
  }
}
