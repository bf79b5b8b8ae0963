/**
 * Singular value decomposition of a matrix of low numerical rank, in float64: a pivoted Gram-Schmidt finds the few directions that
 * matter, one-sided Jacobi rotations (Hestenes) turn them into singular vectors.
 */

/** A ≈ Σ_j left[j] right[j]ᵀ, by falling size: `left` orthonormal, `right` scaled by the singular value. */
export interface LowRank {
  left: Float64Array[];
  right: Float64Array[];
}

const SWEEPS = 30;
const ORTHOGONAL = 1e-15;

const dot = (a: Float64Array, b: Float64Array): number => a.reduce((sum, x, i) => sum + x * (b[i] as number), 0);

/** a -= factor b */
const subtract = (a: Float64Array, factor: number, b: Float64Array): void => b.forEach((x, i) => (a[i] = (a[i] as number) - factor * x));

/** @param columns the matrix by columns; directions smaller than `floor` are left out */
export function lowRank(columns: readonly Float64Array[], floor: number): LowRank {
  const rest = columns.map((c) => Float64Array.from(c));
  const left: Float64Array[] = [];
  const right: Float64Array[] = [];
  for (;;) {
    const norms = rest.map((c) => Math.sqrt(dot(c, c)));
    const pivot = norms.reduce((best, n, i) => (n > (norms[best] as number) ? i : best), 0);
    if ((norms[pivot] as number) <= floor || left.length === columns.length) break;
    const direction = Float64Array.from(rest[pivot] as Float64Array);
    // Once more against the directions before it: what is left of a column has lost digits.
    for (const q of left) subtract(direction, dot(direction, q), q);
    const length = Math.sqrt(dot(direction, direction));
    direction.forEach((x, i) => (direction[i] = x / length));
    left.push(direction);
    right.push(Float64Array.from(rest, (c) => {
      const share = dot(c, direction);
      subtract(c, share, direction);
      return share;
    }));
  }
  diagonalise(left, right);
  const order = right.map((r, j) => ({ j, size: dot(r, r) })).sort((a, b) => b.size - a.size);
  return { left: order.map(({ j }) => left[j] as Float64Array), right: order.map(({ j }) => right[j] as Float64Array) };
}

/** Rotates pairs of right vectors until all are orthogonal, and the left ones with them, which keeps Σ left rightᵀ. */
function diagonalise(left: Float64Array[], right: Float64Array[]): void {
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    let worst = 0;
    for (let p = 0; p < right.length; p++) {
      for (let q = p + 1; q < right.length; q++) {
        const [a, b] = [right[p] as Float64Array, right[q] as Float64Array];
        const [aa, bb, ab] = [dot(a, a), dot(b, b), dot(a, b)];
        const cosine = Math.abs(ab) / Math.sqrt(aa * bb || 1);
        worst = Math.max(worst, cosine);
        if (cosine <= ORTHOGONAL) continue;
        const tau = (bb - aa) / (2 * ab);
        const tangent = (tau < 0 ? -1 : 1) / (Math.abs(tau) + Math.hypot(1, tau));
        const c = 1 / Math.hypot(1, tangent);
        rotate(a, b, c, c * tangent);
        rotate(left[p] as Float64Array, left[q] as Float64Array, c, c * tangent);
      }
    }
    if (worst <= ORTHOGONAL) return;
  }
}

function rotate(a: Float64Array, b: Float64Array, c: number, s: number): void {
  a.forEach((x, i) => {
    const y = b[i] as number;
    a[i] = c * x - s * y;
    b[i] = s * x + c * y;
  });
}
