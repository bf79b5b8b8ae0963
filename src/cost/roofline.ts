/**
 * Prices from a datasheet (or from a calibration's measured ceilings, for a kernel that it has no samples of).
 *
 * A kernel takes max(bytes / bandwidth, operations / rate) + launch. How much of its peak a kernel reaches is unknown
 * until it is measured, so the interval spans what implementations of these operations are known to reach:
 *
 * - low (fastest): datasheet rates in full, matrix units for every product, launches free;
 * - estimate: 70 % of the bandwidth, half of the arithmetic rates, matrix units for projections only, 3 µs a launch;
 * - high (slowest): 25 % of the bandwidth, a quarter of the vector rate, no matrix units, 15 µs a launch.
 *
 * The bracket is for compiled GPU kernels; an eager framework is slower than its slow end (the paper's full cache takes
 * 63.6 ms a token at batch 1, its reconstructing path 1 % of the matrix rate). Known points: tuned decode attention
 * reaches about 90 % of bandwidth (FlashMLA on H800), a plain copy 90 % (4.3 of 4.8 TB/s on an H200), the paper's
 * absorbed kernels 41 % (Table absorbed_latency, one layer × four loops). Rooflines with *fitted* constants still miss
 * measured H200 kernels by 14–35 % (median) and 41–76 % (90th percentile).
 */
import { workOf, type KernelCall, type KernelName } from '../kernels/registry.js';
import type { Work } from '../kernels/spec.js';
import type { Price } from './evidence.js';

export interface Rates {
  readonly bytesPerSecond: number;
  readonly f32FlopsPerSecond: number;
  /** Dense 16-bit matrix rate; null where there are no matrix units (or none that can be reached). */
  readonly matrixFlopsPerSecond: number | null;
}

interface Efficiency {
  bandwidth: number;
  vector: number;
  /** Share of the matrix rate; null: matrix units are not used. */
  matrix: number | null;
  /** Only `matmul` uses matrix units (as the bundled kernels do), or every product does. */
  matrixEverywhere: boolean;
  launchSeconds: number;
}

export const ROOFLINE = {
  low: { bandwidth: 1, vector: 1, matrix: 1, matrixEverywhere: true, launchSeconds: 0 },
  estimate: { bandwidth: 0.7, vector: 0.5, matrix: 0.5, matrixEverywhere: false, launchSeconds: 3e-6 },
  high: { bandwidth: 0.25, vector: 0.25, matrix: null, matrixEverywhere: false, launchSeconds: 15e-6 },
} as const satisfies Record<string, Efficiency>;

function secondsAt(kernel: KernelName, work: Work, rates: Rates, e: Efficiency, launchSeconds: number): number {
  const onMatrix =
    e.matrix !== null && rates.matrixFlopsPerSecond !== null && (e.matrixEverywhere || kernel === 'matmul');
  const matrixFlops = onMatrix ? work.matrixFlops : 0;
  const arithmetic =
    (work.flops - matrixFlops) / (rates.f32FlopsPerSecond * e.vector) +
    (onMatrix ? matrixFlops / ((rates.matrixFlopsPerSecond ?? 1) * (e.matrix ?? 1)) : 0);
  return (
    Math.max((work.readBytes + work.writeBytes) / (rates.bytesPerSecond * e.bandwidth), arithmetic) + launchSeconds
  );
}

/**
 * Price of a call from rates alone.
 * @param launchSeconds measured cost of a launch, where there is one; it replaces the assumed ones
 */
export function rooflinePrice(call: KernelCall, rates: Rates, launchSeconds?: number): Price {
  const work = workOf(call);
  const at = (e: Efficiency) => secondsAt(call.kernel, work, rates, e, launchSeconds ?? e.launchSeconds);
  const estimate = at(ROOFLINE.estimate);
  return {
    estimate,
    low: Math.min(estimate, at(ROOFLINE.low)),
    high: Math.max(estimate, at(ROOFLINE.high)),
    evidence: 'roofline',
    octavesOutside: 0,
    by: 'roofline',
  };
}
