/**
 * Points of the very calls that requests are about to make, beside those of the calibration. What is left between the
 * serving loop and its simulation is then the simulation's error, not that of prices between measured shapes; the
 * latency section judges those.
 */
import { calibrate } from '../bench/index.js';
import type { WeightedCall } from '../bench/tracks.js';
import { outliers } from '../cost/fit.js';
import { fitting, nextPoints } from '../cost/fit-calibration.js';
import type { Device } from '../gpu/index.js';
import type { Calibration } from '../schema/calibration.js';
import { calibratedOf, shapeKey, type Calibrated } from './calibrated.js';
import type { Weighed } from './controls.js';

/** A call longer than this would take the time of many others. */
const LONGEST_SECONDS = 2;

interface OwnRules {
  readonly seconds: number;
  readonly seed: number;
  readonly signal?: AbortSignal;
  readonly onPoint?: (kernel: string) => void;
}

/**
 * The calibration with points of `iterations` measured now: the calls of each with the seconds that they are priced at.
 * A calibration of another machine is put aside.
 * @returns what predicts from now on, and how many points were added
 * @throws GpuError when the device fails
 */
export async function withOwnPoints(
  device: Device,
  calibrated: Calibrated,
  iterations: readonly (readonly Weighed[])[],
  { seconds, seed, signal, onPoint }: OwnRules,
): Promise<{ calibrated: Calibrated; points: number }> {
  const calls = weightedCalls(iterations);
  const earlier = calibrated.difference === null ? calibrated.calibration : undefined;
  const calibration = await calibrate({
    device,
    budgetSeconds: seconds,
    longestCallSeconds: LONGEST_SECONDS,
    seed,
    calls: [() => calls],
    kernels: [...new Set(calls.map((call) => call.kernel))],
    nextPoint: nextPoints(),
    outliers,
    ...(earlier ? { resumeFrom: earlier } : {}),
    ...(signal ? { signal } : {}),
    ...(onPoint ? { onProgress: ({ kernel }) => onPoint(kernel) } : {}),
  });
  for (const _ of fitting(calibration)) continue;
  const count = (of: Calibration | undefined): number =>
    of?.kernels.reduce((sum, { samples }) => sum + samples.length, 0) ?? 0;
  return {
    calibrated: await calibratedOf({ ...calibrated, calibration }, null),
    points: count(calibration) - count(earlier),
  };
}

/** Distinct calls. Their weight is the square of their share of an iteration, summed over iterations (bench/anchors.ts). */
function weightedCalls(iterations: readonly (readonly Weighed[])[]): (WeightedCall & { readonly share: number })[] {
  const known = new Map<string, WeightedCall & { readonly share: number }>();
  for (const calls of iterations) {
    const total = calls.reduce((sum, { seconds }) => sum + seconds, 0);
    const own = new Map<string, Weighed>();
    for (const { call, seconds } of calls) {
      const key = shapeKey(call);
      own.set(key, { call, seconds: seconds + (own.get(key)?.seconds ?? 0) });
    }
    for (const [key, { call, seconds }] of own)
      known.set(key, { ...call, share: (seconds / total) ** 2 + (known.get(key)?.share ?? 0) });
  }
  return [...known.values()];
}
