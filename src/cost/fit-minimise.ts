/** A small deterministic minimiser for the few hyperparameters of a Gaussian process. */

export interface Objective {
  value: number;
  gradient: Float64Array;
}

export interface Minimum {
  x: Float64Array;
  value: number;
  /** Estimate of the inverse of the second derivatives, from the steps taken: a start for a nearby problem. */
  inverseHessian: Float64Array;
}

export interface MinimiseOptions {
  maxIterations?: number;
  /** Limit of a step in every coordinate. */
  maxStep?: number;
  inverseHessian?: Float64Array | undefined;
}

/**
 * Minimises a smooth function by BFGS with a backtracking (Armijo) line search. Nocedal & Wright, Numerical
 * Optimization, alg. 6.1 and 3.1. `start` is not changed.
 */
export function minimise(
  objective: (x: Float64Array) => Objective,
  start: Float64Array,
  options: MinimiseOptions = {},
): Minimum {
  const { maxIterations = 60, maxStep = 1 } = options;
  const n = start.length;
  let x = start.slice();
  let here = objective(x);
  const h = options.inverseHessian?.slice() ?? new Float64Array(n * n);
  const resetInverse = () => {
    h.fill(0);
    for (let i = 0; i < n; i++) h[i * n + i] = 1;
  };
  if (!options.inverseHessian) resetInverse();
  for (let iteration = 0; iteration < maxIterations; iteration++) {
    let direction = times(h, here.gradient, n).map((v) => -v);
    let slope = dot(direction, here.gradient);
    if (slope >= 0) {
      resetInverse();
      direction = here.gradient.map((v) => -v);
      slope = dot(direction, here.gradient);
    }
    const longest = direction.reduce((most, v) => Math.max(most, Math.abs(v)), 0);
    if (longest < 1e-4) break;
    let step = Math.min(1, maxStep / longest);
    let next: Float64Array | undefined;
    let there = here;
    for (let halving = 0; halving < 20 && !next; halving++, step /= 2) {
      const candidate = x.map((v, i) => v + step * direction[i]!);
      there = objective(candidate);
      if (there.value <= here.value + 1e-4 * step * slope) next = candidate;
    }
    if (!next) break;
    const gain = here.value - there.value;
    const s = next.map((v, i) => v - x[i]!);
    const y = there.gradient.map((v, i) => v - here.gradient[i]!);
    const sy = dot(s, y);
    if (sy > 1e-12) {
      const hy = times(h, y, n);
      const yhy = dot(y, hy);
      for (let i = 0; i < n; i++) {
        for (let j = 0; j < n; j++) {
          h[i * n + j] = h[i * n + j]! + ((1 + yhy / sy) * s[i]! * s[j]! - hy[i]! * s[j]! - s[i]! * hy[j]!) / sy;
        }
      }
    }
    x = Float64Array.from(next);
    here = there;
    if (gain < 1e-5) break;
  }
  return { x, value: here.value, inverseHessian: h };
}

function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
}

function times(matrix: Float64Array, v: Float64Array, n: number): Float64Array {
  return v.map((_, i) => dot(matrix.subarray(i * n, i * n + n), v));
}
