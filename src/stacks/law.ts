/**
 * The law that a tuned kernel's time follows: a floor for launch and latency, then what is slower of bytes at a share
 * of the bandwidth and operations at a share of the peak. Tables are stored as deviations from it.
 */
import type { OpWork, Rates } from './class-spec.js';

export interface Law {
  /** Seconds that no call falls below. */
  readonly floorSeconds: number;
  /** Share of the datasheet's bandwidth that is reached. */
  readonly bandwidthShare: number;
  /** Share of the datasheet's matrix rate that is reached. */
  readonly peakShare: number;
}

/** The switch between bytes and operations is rounded: max(a, b) as (a⁴ + b⁴)^¼. */
const SHARPNESS = 4;

/** Seconds of `work` by the law. */
export function lawSeconds(law: Law, work: OpWork, rates: Rates): number {
  const bandwidth = work.onLink ? rates.linkBytesPerSecond : rates.memoryBytesPerSecond;
  const moving = work.bytes / (law.bandwidthShare * bandwidth);
  const computing = work.operations / (law.peakShare * rates.operationsPerSecond);
  return law.floorSeconds + (moving ** SHARPNESS + computing ** SHARPNESS) ** (1 / SHARPNESS);
}

export interface TimedWork {
  readonly work: OpWork;
  readonly seconds: number;
}

/** Points that the fit looks at; more change nothing. */
const MOST_POINTS = 600;
/** Bounds of the fitted numbers: without operations, or bytes, the share that does not matter would run away. */
const BOUNDS = { floor: [1e-8, 1e-3], share: [1e-3, 20] } as const;

/** The law with the least mean |log error|, by coordinate search from typical values. */
export function fitLaw(points: readonly TimedWork[], rates: Rates): Law {
  const stride = Math.max(1, points.length / MOST_POINTS);
  const sample = Array.from({ length: Math.ceil(points.length / stride) }, (_, i) => points[Math.floor(i * stride)]!);
  const sorted = sample.map((p) => p.seconds).sort((a, b) => a - b);
  const toLaw = ([floor, bandwidth, peak]: readonly number[]): Law => ({
    floorSeconds: Math.exp(floor!),
    bandwidthShare: Math.exp(bandwidth!),
    peakShare: Math.exp(peak!),
  });
  const cost = (x: readonly number[]): number => {
    const law = toLaw(x);
    return sample.reduce((sum, p) => sum + Math.abs(Math.log(p.seconds / lawSeconds(law, p.work, rates))), 0);
  };
  const bounds = [BOUNDS.floor, BOUNDS.share, BOUNDS.share].map((pair) => pair.map(Math.log));
  const clamp = (value: number, i: number): number => Math.min(bounds[i]![1]!, Math.max(bounds[i]![0]!, value));
  let best = [Math.log(sorted[Math.floor(sorted.length / 50)]!), Math.log(0.8), Math.log(0.5)].map(clamp);
  let least = cost(best);
  for (let step = 0.5; step > 1e-3;) {
    let moved = false;
    for (let i = 0; i < best.length; i++)
      for (const sign of [1, -1]) {
        const next = best.map((value, j) => (j === i ? clamp(value + sign * step, i) : value));
        const value = cost(next);
        if (value < least - 1e-12) [best, least, moved] = [next, value, true];
      }
    if (!moved) step /= 2;
  }
  return toLaw(best);
}
