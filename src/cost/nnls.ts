/**
 * Non-negative least squares: min |A x − b|² with x ≥ 0. Lawson & Hanson, Solving Least Squares Problems (1974), ch.
 * 23, on the normal equations (Bro & De Jong, "A fast non-negativity-constrained least squares algorithm", 1997): a
 * mean has a handful of terms and is refitted hundreds of times, once for each point left out and each step of
 * reweighting.
 */

/**
 * Squared sine of the angle below which a column counts as a combination of the chosen ones (float64 of a Gram matrix).
 */
const DEPENDENT = 1e-10;
/** Share of |A_j||b| below which a descent direction counts as zero. */
const GRADIENT_TOLERANCE = 1e-11;

/** Solves the least squares problem of `A` (row-major, rows × columns); rows may have weights. */
export function nnls(a: Float64Array, b: Float64Array, columns: number, weights?: Float64Array): Float64Array {
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
      rhs[j] = rhs[j]! + wa * b[i]!;
      for (let k = 0; k <= j; k++) gram[j * columns + k] = gram[j * columns + k]! + wa * a[i * columns + k]!;
    }
  }
  return nnlsGram(gram, rhs);
}

/** The same from the lower triangle of AᵀA and from Aᵀb. Columns are scaled to unit length inside. */
export function nnlsGram(gram: Float64Array, rhs: Float64Array): Float64Array {
  const p = rhs.length;
  const scale = Float64Array.from({ length: p }, (_, j) =>
    gram[j * p + j]! > 0 ? 1 / Math.sqrt(gram[j * p + j]!) : 0,
  );
  const g = (i: number, j: number): number => gram[Math.max(i, j) * p + Math.min(i, j)]! * scale[i]! * scale[j]!;
  const c = Float64Array.from(rhs, (value, j) => value * scale[j]!);
  const tolerance = GRADIENT_TOLERANCE * c.reduce((most, value) => Math.max(most, Math.abs(value)), 0);

  const x = new Float64Array(p);
  let passive: number[] = [];
  /**
   * Columns that were refused since the solution last changed: they depend on the passive ones or come out negative.
   */
  const refused = new Set<number>();
  for (let round = 0; round < 10 * p + 10; round++) {
    let entering = -1;
    let steepest = tolerance;
    for (let j = 0; j < p; j++) {
      if (passive.includes(j) || refused.has(j)) continue;
      const slope = passive.reduce((sum, k) => sum - g(j, k) * x[k]!, c[j]!);
      if (slope > steepest) [entering, steepest] = [j, slope];
    }
    if (entering < 0) break;
    let trial = [...passive, entering];
    let solution = solveSubset(g, c, trial);
    if (!solution || solution[trial.length - 1]! <= 0) {
      refused.add(entering);
      continue;
    }
    refused.clear();
    // Walk towards the unconstrained solution until it is feasible, dropping the column that hits zero first.
    for (let blocking = mostBlocking(x, trial, solution); blocking >= 0; blocking = mostBlocking(x, trial, solution)) {
      const from = x[trial[blocking]!]!;
      const step = from / (from - solution[blocking]!);
      for (const [index, j] of trial.entries()) x[j] = x[j]! + step * (solution[index]! - x[j]!);
      x[trial[blocking]!] = 0;
      trial = trial.filter((_, index) => index !== blocking);
      solution = solveSubset(g, c, trial) ?? Float64Array.from(trial, (j) => x[j]!);
    }
    passive = trial;
    for (const [index, j] of trial.entries()) x[j] = solution[index]!;
  }
  return x.map((value, j) => value * scale[j]!);
}

/** Index into `subset` of the column that reaches zero first on the way from x to `solution`; -1 when none does. */
function mostBlocking(x: Float64Array, subset: readonly number[], solution: Float64Array): number {
  let blocking = -1;
  let shortest = Infinity;
  for (const [index, j] of subset.entries()) {
    if (solution[index]! > 0) continue;
    const step = x[j]! / (x[j]! - solution[index]!);
    if (step < shortest) [blocking, shortest] = [index, step];
  }
  return blocking;
}

/** Least squares on a subset of unit columns by Cholesky; undefined when the last one depends on those before. */
function solveSubset(
  g: (i: number, j: number) => number,
  c: Float64Array,
  subset: readonly number[],
): Float64Array | undefined {
  const m = subset.length;
  const l = new Float64Array(m * m);
  const x = new Float64Array(m);
  for (let i = 0; i < m; i++) {
    for (let j = 0; j <= i; j++) {
      let sum = g(subset[i]!, subset[j]!);
      for (let k = 0; k < j; k++) sum -= l[i * m + k]! * l[j * m + k]!;
      if (i === j && sum < DEPENDENT) return undefined;
      l[i * m + j] = i === j ? Math.sqrt(sum) : sum / l[j * m + j]!;
    }
    x[i] = c[subset[i]!]!;
    for (let k = 0; k < i; k++) x[i] = x[i]! - l[i * m + k]! * x[k]!;
    x[i] = x[i]! / l[i * m + i]!;
  }
  for (let i = m - 1; i >= 0; i--) {
    x[i] = x[i]! / l[i * m + i]!;
    for (let k = 0; k < i; k++) x[k] = x[k]! - l[i * m + k]! * x[i]!;
  }
  return x;
}
