/**
 * The physical mean m(x) = Σ θ_j f_j(x), θ ≥ 0, fitted to relative (log) error by iteratively reweighted least squares:
 * L1 beyond the median residual, squares below it (Huber). Pure L1 passes through as many points as it has terms, noise
 * included; with 10 % noise that costs a tenth of the accuracy.
 */
import { CONSTANTS } from '../constants.js';
import type { KernelName } from '../../../kernels/registry.js';
import { nnls } from './nnls.js';
import { logMean, meanFloor, termsAt, type Point } from '../predictor.js';
import { median } from '../../numbers/statistics.js';

/** Relative residuals below this weigh no more, however small the median: about the repeatability of a GPU timer. */
const IRLS_EPSILON = CONSTANTS.relativeEpsilon.value;
/** A mean this much below the time weighs no more. */
const SMALLEST_RATIO = 1e-6;
const MAX_ITERATIONS = 25;
const MAX_TERMS_OF_A_SUBSET = 3;

/** Points with everything that does not depend on which terms are chosen. */
export interface Data {
  n: number;
  /** All physical terms of the kernel at each point. */
  terms: number[][];
  seconds: Float64Array;
  logSeconds: Float64Array;
  floor: number;
}

export function dataOf(kernel: KernelName, variant: string, points: readonly Point[]): Data {
  const seconds = Float64Array.from(points, (point) => point.seconds);
  return {
    n: points.length,
    terms: points.map((p) => termsAt(kernel, variant, p.shape)),
    seconds,
    logSeconds: seconds.map(Math.log),
    floor: meanFloor(points),
  };
}

export interface Mean {
  termIndices: readonly number[];
  theta: Float64Array;
  /** Median of log t − log m over the points fitted: a lone outlier must not shift every prediction. */
  offset: number;
  /** log t − log m − offset at every point, also at a point left out. */
  residuals: Float64Array;
  /** Row weights at the solution, from which a refit without one point starts. */
  weights: Float64Array;
}

/** Terms over the measured time, row by row: a · θ is the mean as a multiple of the time. */
function rowsOf({ n, terms, seconds }: Data, termIndices: readonly number[]): Float64Array {
  const p = termIndices.length;
  const a = new Float64Array(n * p);
  for (let i = 0; i < n; i++) for (let j = 0; j < p; j++) a[i * p + j] = terms[i]![termIndices[j]!]! / seconds[i]!;
  return a;
}

/** Fits θ, without point `omit` if given. `start`: weights of a fit to nearly the same points. */
export function fitMean(
  data: Data,
  termIndices: readonly number[],
  start?: Float64Array,
  omit = -1,
  a = rowsOf(data, termIndices),
): Mean {
  const { n, terms, logSeconds, floor } = data;
  const p = termIndices.length;
  // The problem is not convex: a time that is far too short pulls plain least squares to itself and keeps it there.
  const starts = start ? [start] : [new Float64Array(n).fill(1), inverseLeverage(a, n, p)];
  const found = starts.map((weights) => reweight(a, n, p, weights, omit));
  const { theta, weights } = found.reduce((best, one) => (one.loss < best.loss ? one : best));
  const residuals = new Float64Array(n);
  for (let i = 0; i < n; i++) residuals[i] = logSeconds[i]! - logMean(terms[i]!, termIndices, theta, floor);
  const fitted = omit < 0 ? residuals : residuals.filter((_, i) => i !== omit);
  const offset = fitted.length > 0 ? median(fitted) : 0;
  for (let i = 0; i < n; i++) residuals[i] = residuals[i]! - offset;
  return { termIndices, theta, offset, residuals, weights };
}

/** Weights that give every row the same pull, however short its time. */
function inverseLeverage(a: Float64Array, n: number, p: number): Float64Array {
  const largest = new Float64Array(p);
  for (let at = 0; at < n * p; at++) largest[at % p] = Math.max(largest[at % p]!, a[at]!);
  return Float64Array.from({ length: n }, (_, i) => {
    let squared = 0;
    for (let j = 0; j < p; j++) squared += largest[j]! > 0 ? (a[i * p + j]! / largest[j]!) ** 2 : 0;
    return squared > 0 ? 1 / squared : 0;
  });
}

/**
 * Iteratively reweighted least squares of rows a · θ = 1 (a: terms / time) from starting weights; loss: Σ |log (m /
 * t)|.
 */
function reweight(
  a: Float64Array,
  n: number,
  p: number,
  start: Float64Array,
  omit: number,
): { theta: Float64Array; weights: Float64Array; loss: number } {
  const target = new Float64Array(n).fill(1);
  const weights = start.slice();
  const logs = new Float64Array(n);
  const sizes = new Float64Array(n);
  let theta = new Float64Array(p);
  for (let iteration = 0; iteration < MAX_ITERATIONS; iteration++) {
    if (omit >= 0) weights[omit] = 0;
    theta = nnls(a, target, p, weights);
    let change = 0;
    for (let i = 0; i < n; i++) {
      let ratio = 0;
      for (let j = 0; j < p; j++) ratio += a[i * p + j]! * theta[j]!;
      const log = Math.log(Math.max(ratio, SMALLEST_RATIO));
      change = Math.max(change, Math.abs(log - logs[i]!));
      logs[i] = log;
      sizes[i] = Math.abs(log);
    }
    const knee = Math.max(IRLS_EPSILON, median(sizes));
    for (let i = 0; i < n; i++) {
      // |log r| as a multiple of the row's residual |r − 1|, r = m / t: least squares of rows then minimise log errors.
      const log = logs[i]!;
      const slope = Math.abs(log) < 1e-6 ? 1 : log / Math.expm1(log);
      weights[i] = slope ** 2 / Math.max(Math.abs(log), knee);
    }
    if (iteration > 0 && change < 1e-4) break;
  }
  return { theta, weights, loss: logs.reduce((sum, log, i) => (i === omit ? sum : sum + Math.abs(log)), 0) };
}

/** The means refitted without each point in turn. */
export function refitWithoutEach(data: Data, mean: Mean): Mean[] {
  const a = rowsOf(data, mean.termIndices);
  return Array.from({ length: data.n }, (_, i) => fitMean(data, mean.termIndices, mean.weights, i, a));
}

/** Every list of terms worth trying: all of them, and the constant with one or two others. */
export function candidateTerms(count: number): number[][] {
  const all = Array.from({ length: count }, (_, j) => j);
  const others = all.slice(1);
  const subsets = [
    [0],
    ...others.map((j) => [0, j]),
    ...others.flatMap((j) => others.filter((k) => k > j).map((k) => [0, j, k])),
  ];
  return count > MAX_TERMS_OF_A_SUBSET ? [all, ...subsets] : [all, ...subsets.filter((s) => s.length < count)];
}

/** Candidates in order of the mean absolute leave-one-out residual of the physical mean alone. */
export function rankCandidates(data: Data): number[][] {
  const count = data.terms[0]!.length;
  const scored = candidateTerms(count).map((termIndices) => {
    const mean = fitMean(data, termIndices);
    const left = data.n > 1 ? refitWithoutEach(data, mean) : [mean];
    return { termIndices, score: left.reduce((sum, refit, i) => sum + Math.abs(refit.residuals[i]!), 0) / data.n };
  });
  return scored.sort((a, b) => a.score - b.score).map(({ termIndices }) => termIndices);
}
