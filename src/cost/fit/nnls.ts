/**
 * Our own: rows have weights, which change at each step, and columns that depend on others must come out as 0.
 *
 * Non-negative least squares: min |A x − b|² with x ≥ 0. Lawson & Hanson, Solving Least Squares Problems (1974), ch.
 * 23, on the normal equations (Bro & De Jong, "A fast non-negativity-constrained least squares algorithm", 1997): a
 * mean has a handful of terms and is refitted hundreds of times, once for each point left out and each step of
 * reweighting.
 */
import { cholesky, solve } from '../linear.js';

/**
 * Squared sine of the angle below which a column counts as a combination of the chosen ones (float64 of a Gram matrix).
 */
const DEPENDENT = 1e-10;
/** Share of |A_j||b| below which a descent direction counts as zero. */
const GRADIENT_TOLERANCE = 1e-11;

/** Solves the least squares problem of `A` (row-major, rows × columns); rows may have weights. */
export function nnls(
  a: Float64Array,
  b: Float64Array,
  columns: number,
  weights?: Float64Array,
): Float64Array<ArrayBuffer> {
  const rows = b.length;
  if (a.length !== rows * columns)
    throw new Error(`nnls: matrix has ${a.length} entries, expected ${rows} × ${columns}`);
  const gram = new Float64Array(columns * columns);
  const rhs = new Float64Array(columns);
  for (let i = 0; i < rows; i++) {
    const w = weights ? weights[i]! : 1;
    if (w === 0) continue;
    for (let j = 0; j < columns; j++) {
      const wa = w * a[i * columns + j]!;
      rhs[j]! += wa * b[i]!;
      for (let k = 0; k <= j; k++) gram[j * columns + k]! += wa * a[i * columns + k]!;
    }
  }
  return nnlsGram(gram, rhs);
}

/** The same from the lower triangle of AᵀA and from Aᵀb. Columns are scaled to unit length inside. */
function nnlsGram(gram: Float64Array, rhs: Float64Array): Float64Array<ArrayBuffer> {
  const p = rhs.length;
  const scale = new Float64Array(p);
  for (let j = 0; j < p; j++) scale[j] = gram[j * p + j]! > 0 ? 1 / Math.sqrt(gram[j * p + j]!) : 0;
  /** Products of the unit columns, and of each with b. */
  const g = new Float64Array(p * p);
  const c = new Float64Array(p);
  let largest = 0;
  for (let i = 0; i < p; i++) {
    for (let j = 0; j < p; j++) g[i * p + j] = gram[Math.max(i, j) * p + Math.min(i, j)]! * scale[i]! * scale[j]!;
    c[i] = rhs[i]! * scale[i]!;
    largest = Math.max(largest, Math.abs(c[i]!));
  }
  const tolerance = GRADIENT_TOLERANCE * largest;

  const x = new Float64Array(p);
  let passive: number[] = [];
  /**
   * Columns that were refused since the solution last changed: they depend on the passive ones or come out negative.
   */
  const refused: number[] = [];
  for (let round = 0; round < 10 * p + 10; round++) {
    let entering = -1;
    let steepest = tolerance;
    for (let j = 0; j < p; j++) {
      if (passive.includes(j) || refused.includes(j)) continue;
      let slope = c[j]!;
      for (const k of passive) slope -= g[j * p + k]! * x[k]!;
      if (slope > steepest) [entering, steepest] = [j, slope];
    }
    if (entering < 0) break;
    let trial = [...passive, entering];
    let solution = solveSubset(g, c, trial);
    if (!solution || solution[trial.length - 1]! <= 0) {
      refused.push(entering);
      continue;
    }
    refused.length = 0;
    // Walk towards the unconstrained solution until it is feasible, dropping the column that hits zero first.
    for (let blocking = mostBlocking(x, trial, solution); blocking >= 0; blocking = mostBlocking(x, trial, solution)) {
      const from = x[trial[blocking]!]!;
      const step = from / (from - solution[blocking]!);
      for (let i = 0; i < trial.length; i++) x[trial[i]!]! += step * (solution[i]! - x[trial[i]!]!);
      x[trial[blocking]!] = 0;
      trial = trial.filter((_, index) => index !== blocking);
      solution = solveSubset(g, c, trial) ?? Float64Array.from(trial, (j) => x[j]!);
    }
    passive = trial;
    for (let i = 0; i < trial.length; i++) x[trial[i]!] = solution[i]!;
  }
  for (let j = 0; j < p; j++) x[j]! *= scale[j]!;
  return x;
}

/** Index into `subset` of the column that reaches zero first on the way from x to `solution`; -1 when none does. */
function mostBlocking(x: Float64Array, subset: readonly number[], solution: Float64Array): number {
  let blocking = -1;
  let shortest = Infinity;
  for (let index = 0; index < subset.length; index++) {
    if (solution[index]! > 0) continue;
    const from = x[subset[index]!]!;
    const step = from / (from - solution[index]!);
    if (step < shortest) [blocking, shortest] = [index, step];
  }
  return blocking;
}

/**
 * Least squares on a subset of unit columns by Cholesky; undefined when the last one depends on those before.
 * @param g products of the unit columns, row by row
 */
function solveSubset(g: Float64Array, c: Float64Array, subset: readonly number[]): Float64Array | undefined {
  const m = subset.length;
  const l = new Float64Array(m * m);
  for (let i = 0; i < m; i++) for (let j = 0; j <= i; j++) l[i * m + j] = g[subset[i]! * c.length + subset[j]!]!;
  cholesky(l, m, DEPENDENT);
  if (subset.some((_, i) => l[i * m + i]! <= Math.sqrt(DEPENDENT))) return undefined;
  return solve(
    l,
    m,
    Float64Array.from(subset, (j) => c[j]!),
  );
}
