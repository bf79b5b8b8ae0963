/**
 * Prices from a datasheet (or from a calibration's measured ceilings, for a kernel that it has no samples of).
 *
 * A kernel takes max(bytes / bandwidth, operations / rate) + launch. How much of its peak a kernel reaches is unknown
 * until it is measured, so the interval spans what implementations of these operations are known to reach:
 *
 * - low (fastest): datasheet rates in full, for what a tuned kernel moves (bf16 activations) and computes on matrix
 *   units; 1 µs a launch, none for what a neighbour's kernel does;
 * - estimate: 70 % of the bandwidth, half of the arithmetic rates, 3 µs a launch; matrix units for every product that
 *   they can do (of this project's own kernels for projections and the materialised rebuild alone);
 * - high (slowest): 25 % of the bandwidth, a quarter of the vector rate, no matrix units, 8 µs a launch.
 *
 * The bracket is for compiled GPU kernels; an eager framework is slower than its slow end (the paper's full cache takes
 * 63.6 ms a token at batch 1, its reconstructing path 1 % of the matrix rate). Known points: tuned decode attention
 * reaches about 90 % of bandwidth (FlashMLA on H800), a plain copy 90 % (4.3 of 4.8 TB/s on an H200), the paper's
 * absorbed kernels 41 % (Table absorbed_latency, one layer × four loops). Rooflines with *fitted* constants still miss
 * measured H200 kernels by 14–35 % (median) and 41–76 % (90th percentile).
 */
import { KERNELS, workOf, type KernelCall, type KernelName } from '../../kernels/registry.js';
import type { Work } from '../../kernels/spec.js';
import type { Price } from './evidence.js';
import { leftOutOf, type CallExplanation } from './explain.js';

/** Rates of a device: bytes and operations a second. */
export interface Rates {
  readonly bytesPerSecond: number;
  readonly f32FlopsPerSecond: number;
  /** Dense 16-bit matrix rate; null where there are no matrix units (or none that can be reached). */
  readonly matrixFlopsPerSecond: number | null;
  /** Its multiprocessors or compute units. */
  readonly units?: number;
  /** Of its last cache; absent or null where it is unknown. */
  readonly l2Bytes?: number | null;
}

interface Efficiency {
  bandwidth: number;
  vector: number;
  /** Share of the matrix rate; null: matrix units are not used. */
  matrix: number | null;
  launchSeconds: number;
}

export const ROOFLINE = {
  low: { bandwidth: 1, vector: 1, matrix: 1, launchSeconds: 1e-6 },
  estimate: { bandwidth: 0.7, vector: 0.5, matrix: 0.5, launchSeconds: 3e-6 },
  high: { bandwidth: 0.25, vector: 0.25, matrix: null, launchSeconds: 8e-6 },
} as const satisfies Record<string, Efficiency>;

/** This project's kernels that use matrix units. */
const BUNDLED_ON_MATRIX: readonly KernelName[] = ['matmul', 'rebuild'];

function secondsAt(work: Work, rates: Rates, e: Efficiency, launchSeconds: number, mayUseMatrix: boolean): number {
  const onMatrix = mayUseMatrix && e.matrix !== null && rates.matrixFlopsPerSecond !== null;
  const matrixFlops = onMatrix ? work.matrixFlops : 0;
  const arithmetic =
    (work.flops - matrixFlops) / (rates.f32FlopsPerSecond * e.vector) +
    (onMatrix ? matrixFlops / ((rates.matrixFlopsPerSecond ?? 1) * (e.matrix ?? 1)) : 0);
  return (
    Math.max((work.readBytes + work.writeBytes) / (rates.bytesPerSecond * e.bandwidth), arithmetic) + launchSeconds
  );
}

/**
 * The least that a tuned kernel takes for the same call: bytes or operations at full rates, and a launch of its own.
 */
function fastest({ kernel, variant, shape }: KernelCall, rates: Rates, launchSeconds: number): number {
  const tuned = KERNELS[kernel].tuned(shape, variant);
  if (!tuned) return 0;
  const { bandwidth, vector, matrix } = ROOFLINE.low;
  const { bytes, operations, vectorOperations = 0 } = tuned.work;
  const matrixRate = (rates.matrixFlopsPerSecond ?? rates.f32FlopsPerSecond) * matrix;
  const arithmetic = operations / matrixRate + vectorOperations / (rates.f32FlopsPerSecond * vector);
  return Math.max(bytes / (rates.bytesPerSecond * bandwidth), arithmetic) + (tuned.inside ? 0 : launchSeconds);
}

/**
 * Price of a call from rates alone.
 * @param bundled whether this project's kernels run, with the measured cost of a launch; else compiled ones of the kind
 */
export function rooflinePrice(call: KernelCall, rates: Rates, bundled?: { readonly launchSeconds?: number }): Price {
  const work = workOf(call);
  const launch = (e: Efficiency): number => bundled?.launchSeconds ?? e.launchSeconds;
  const onMatrix = !bundled || BUNDLED_ON_MATRIX.includes(call.kernel);
  const at = (e: Efficiency): number => secondsAt(work, rates, e, launch(e), onMatrix);
  const estimate = at(ROOFLINE.estimate);
  const low = bundled
    ? secondsAt(work, rates, ROOFLINE.low, launch(ROOFLINE.low), true)
    : fastest(call, rates, launch(ROOFLINE.low));
  return {
    estimate,
    low: Math.min(estimate, low),
    high: Math.max(estimate, at(ROOFLINE.high)),
    evidence: 'roofline',
    octavesOutside: 0,
    by: 'roofline',
  };
}

/** The parts of that price's estimate. Nothing was left out: the bracket is between implementations. */
export function explainRoofline(
  call: KernelCall,
  rates: Rates,
  bundled?: { readonly launchSeconds?: number },
): CallExplanation {
  const { estimate, high } = rooflinePrice(call, rates, bundled);
  const work = workOf(call);
  const onMatrix = !bundled || BUNDLED_ON_MATRIX.includes(call.kernel);
  const alone = (rest: Partial<Work>): number => secondsAt({ ...work, ...rest }, rates, ROOFLINE.estimate, 0, onMatrix);
  const parts = [
    { part: 'launch', seconds: bundled?.launchSeconds ?? ROOFLINE.estimate.launchSeconds },
    { part: 'bytes', seconds: alone({ flops: 0, matrixFlops: 0 }) },
    { part: 'operations', seconds: alone({ readBytes: 0, writeBytes: 0 }) },
  ];
  const what = 'nothing was measured: a quarter of the rates is assumed at the slow end, all of them at the fast one';
  return {
    law: { kind: 'longest', seconds: estimate, parts },
    data: null,
    leftOut: leftOutOf((because) => because(what, Math.log(high / estimate))),
  };
}
