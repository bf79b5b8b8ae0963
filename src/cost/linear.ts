/**
 * Dense linear algebra of the cost model: symmetric positive definite systems of at most some hundred rows. Matrices
 * are row-major; everything works in place or in arrays that the caller keeps, since a prediction allocates nothing
 * (why this is no package).
 */

/**
 * Cholesky factor L (lower, row-major, in place of the lower triangle) of a symmetric positive definite matrix.
 * A pivot lost to rounding is raised to `pivotFloor`: the point then repeats another one and carries no information.
 */
export function cholesky(matrix: Float64Array, n: number, pivotFloor: number): Float64Array {
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) {
      let sum = matrix[i * n + j]!;
      for (let k = 0; k < j; k++) sum -= matrix[i * n + k]! * matrix[j * n + k]!;
      matrix[i * n + j] = i === j ? Math.sqrt(Math.max(sum, pivotFloor)) : sum / matrix[j * n + j]!;
    }
  }
  return matrix;
}

/** Solves L v = b in place. */
export function solveLower(l: Float64Array, n: number, b: Float64Array): Float64Array {
  for (let i = 0; i < n; i++) {
    let sum = b[i]!;
    for (let k = 0; k < i; k++) sum -= l[i * n + k]! * b[k]!;
    b[i] = sum / l[i * n + i]!;
  }
  return b;
}

/** Solves L Lᵀ v = b in place. */
export function solve(l: Float64Array, n: number, b: Float64Array): Float64Array {
  solveLower(l, n, b);
  for (let i = n - 1; i >= 0; i--) {
    const v = b[i]! / l[i * n + i]!;
    b[i] = v;
    for (let k = 0; k < i; k++) b[k] = b[k]! - l[i * n + k]! * v;
  }
  return b;
}

export function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
}
