/**
 * The functions of block-absorbed attention, from the rotary frequencies in float64. In a block of B positions with
 * offsets δ = ±½, ±1½, … from its centre, the tables cos(θ_m δ) and sin(θ_m δ) over offsets and pairs are numerically
 * of low rank, and the same in every block. With x = δ / (B/2 − ½) and φ_m = θ_m (B/2 − ½), the Jacobi–Anger expansion
 *   cos(φ x) = J_0(φ) + 2 Σ_k (−1)^k J_2k(φ) T_2k(x)      sin(φ x) = 2 Σ_k (−1)^k J_2k+1(φ) T_2k+1(x)
 * (Abramowitz and Stegun 9.1.42–45) gives every pair a short vector of Chebyshev coefficients; Gram–Schmidt with
 * pivoting picks the few directions that all of them share. As |T_k| ≤ 1, the sum of a pair's coefficients that are
 * left over bounds its error at every offset. The fastest pairs stay as they are.
 */

/** θ_m = base^(−2m/d), m = 0 … d/2 − 1 (Su et al., RoFormer, eq. 15). */
const frequencies = (base: number, headDim: number): number[] =>
  Array.from({ length: headDim / 2 }, (_, m) => base ** ((-2 * m) / headDim));

/** Phases that are expanded at most: above them it takes more functions than exact pairs. */
const MOST_PHASE = 16;
/** Coefficients of a parity: J_48(16) is below 1e-16. */
const COEFFICIENTS = 24;

/** J_0(x) … J_{2·COEFFICIENTS−1}(x) by Miller's backward recurrence, for 0 ≤ x ≤ MOST_PHASE. */
export function besselJ(x: number): Float64Array {
  const orders = 2 * COEFFICIENTS;
  const values = new Float64Array(orders);
  if (x < 1e-8) {
    // Beyond J_1 the next is x² / 8.
    values[0] = 1;
    values[1] = x / 2;
    return values;
  }
  let [above, here] = [0, 1e-250];
  let total = 0;
  for (let n = orders + 16; n > 0; n--) {
    [above, here] = [here, (2 * n * here) / x - above];
    if (Math.abs(here) > 1e200) {
      above *= 1e-200;
      here *= 1e-200;
      total *= 1e-200;
      for (let i = n; i < orders; i++) values[i] = (values[i] as number) * 1e-200;
    }
    if (n - 1 < orders) values[n - 1] = here;
    // J_0 + 2 Σ J_2k = 1.
    if ((n - 1) % 2 === 0) total += n === 1 ? here : 2 * here;
  }
  return values.map((v) => v / total);
}

/** Functions of one parity: their Chebyshev coefficients, and each pair's coefficients over them. */
interface Functions {
  readonly directions: readonly Float64Array[];
  /** [function][pair − exact pairs] */
  readonly shares: readonly Float64Array[];
  /** Bound of the error of any pair at any offset. */
  readonly error: number;
}

const dot = (a: Float64Array, b: Float64Array): number => {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] as number) * (b[i] as number);
  return sum;
};
/** a −= factor b */
const subtract = (a: Float64Array, factor: number, b: Float64Array): void => {
  for (let i = 0; i < a.length; i++) a[i] = (a[i] as number) - factor * (b[i] as number);
};
const absoluteSum = (a: Float64Array): number => {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += Math.abs(a[i] as number);
  return sum;
};

/**
 * Fewest directions found that reach every row within `tolerance` (sum of absolute coefficients), at most `most`; null
 * if these do not.
 */
function spanning(rows: readonly Float64Array[], tolerance: number, most: number): Functions | null {
  const rest = rows.map((r) => Float64Array.from(r));
  const directions: Float64Array[] = [];
  const shares: Float64Array[] = [];
  for (;;) {
    let [worst, pivot] = [-1, 0];
    rest.forEach((r, m) => {
      const size = absoluteSum(r);
      if (size > worst) [worst, pivot] = [size, m];
    });
    if (worst <= tolerance) return { directions, shares, error: Math.max(0, worst) };
    if (directions.length === most) return null;
    const direction = Float64Array.from(rest[pivot] as Float64Array);
    // Orthogonalise again against the directions before it: the remainder of a row has lost digits.
    for (const q of directions) subtract(direction, dot(direction, q), q);
    const length = Math.sqrt(dot(direction, direction));
    for (let i = 0; i < direction.length; i++) direction[i] = (direction[i] as number) / length;
    directions.push(direction);
    shares.push(
      Float64Array.from(rest, (r) => {
        const share = dot(r, direction);
        subtract(r, share, direction);
        return share;
      }),
    );
  }
}

export interface BlockBasis {
  readonly blockTokens: number;
  /** Fast pairs that are taken as they are. */
  readonly exactPairs: number;
  readonly even: Functions;
  readonly odd: Functions;
}

/**
 * Limits of the kernel: functions of both parities for the pairs that are not exact, and of one parity including the
 * exact ones.
 */
const LIMITS = { more: 32, parity: 32 } as const;

const scaleOf = (blockTokens: number): number => (blockTokens - 1) / 2;

/**
 * Chebyshev coefficients of all pairs of a block size: those of the cosines, and of the sines; zeros where the phase is
 * beyond MOST_PHASE.
 */
function expansions(
  ropeBase: number,
  headDim: number,
  blockTokens: number,
): { phases: number[]; evens: Float64Array[]; odds: Float64Array[] } {
  const phases = frequencies(ropeBase, headDim).map((t) => t * scaleOf(blockTokens));
  const coefficients = phases.map((phase) =>
    phase <= MOST_PHASE ? besselJ(phase) : new Float64Array(2 * COEFFICIENTS),
  );
  const parity = (odd: number): Float64Array[] =>
    coefficients.map((j) =>
      Float64Array.from(
        { length: COEFFICIENTS },
        (_, k) => (2 * k + odd === 0 ? 1 : 2 * (-1) ** k) * (j[2 * k + odd] as number),
      ),
    );
  return { phases, evens: parity(0), odds: parity(1) };
}

function basisOf(
  of: ReturnType<typeof expansions>,
  blockTokens: number,
  exactPairs: number,
  tolerance: number,
): BlockBasis | null {
  const even = spanning(of.evens.slice(exactPairs), tolerance, LIMITS.parity - exactPairs);
  const odd =
    even &&
    spanning(
      of.odds.slice(exactPairs),
      tolerance,
      Math.min(LIMITS.parity - exactPairs, LIMITS.more - even.directions.length),
    );
  return even && odd ? { blockTokens, exactPairs, even, odd } : null;
}

/** The basis of a block size with so many exact pairs; null where the kernel's limits do not hold it. */
export const basisWith = (
  ropeBase: number,
  headDim: number,
  blockTokens: number,
  exactPairs: number,
  tolerance: number,
): BlockBasis | null => basisOf(expansions(ropeBase, headDim, blockTokens), blockTokens, exactPairs, tolerance);

/**
 * The bases of a block size, one for each number of exact pairs that is worth considering, fewest first.
 * @param tolerance largest error of a pair's cosine or sine
 */
export function* basesOf(
  ropeBase: number,
  headDim: number,
  blockTokens: number,
  tolerance: number,
): Generator<BlockBasis> {
  const all = expansions(ropeBase, headDim, blockTokens);
  const { phases } = all;
  for (let exactPairs = 0; exactPairs <= phases.length; exactPairs++) {
    if ((phases[exactPairs] ?? 0) > MOST_PHASE) continue;
    if (exactPairs > LIMITS.parity) break;
    const basis = basisOf(all, blockTokens, exactPairs, tolerance);
    if (basis) yield basis;
    // Slower pairs are all expanded by a function or two.
    if ((phases[exactPairs] ?? 0) < 1) break;
  }
}

/**
 * Phi of a basis, [offset][function] with offsets ½, 1½, …: cos of the exact pairs and even functions, padded to whole
 * quads, then sin of the exact pairs and odd functions, padded likewise.
 */
export function phiTable(
  ropeBase: number,
  headDim: number,
  { blockTokens, exactPairs, even, odd }: BlockBasis,
): Float32Array<ArrayBuffer> {
  const half = blockTokens / 2;
  const theta = frequencies(ropeBase, headDim).slice(0, exactPairs);
  const series =
    (direction: Float64Array, parity: number) =>
    (delta: number): number => {
      const angle = Math.acos(Math.min(1, delta / scaleOf(blockTokens)));
      let sum = 0;
      for (let k = 0; k < direction.length; k++) sum += (direction[k] as number) * Math.cos((2 * k + parity) * angle);
      return sum;
    };
  const quads = (list: ((delta: number) => number)[]) => [
    ...list,
    ...Array<() => number>((4 - (list.length % 4)) % 4).fill(() => 0),
  ];
  const functions = [
    ...quads([
      ...theta.map((t) => (delta: number) => Math.cos(t * delta)),
      ...even.directions.map((d) => series(d, 0)),
    ]),
    ...quads([...theta.map((t) => (delta: number) => Math.sin(t * delta)), ...odd.directions.map((d) => series(d, 1))]),
  ];
  return Float32Array.from({ length: half * functions.length }, (_, i) =>
    (functions[i % functions.length] as (delta: number) => number)(Math.floor(i / functions.length) + 0.5),
  );
}

/** Psi of a basis, [pair − exact pairs][even functions, odd functions, padded to whole quads]. */
export function psiTable(headDim: number, { exactPairs, even, odd }: BlockBasis): Float32Array<ArrayBuffer> {
  const all = [...even.shares, ...odd.shares];
  const width = Math.ceil(all.length / 4) * 4;
  const table = new Float32Array((headDim / 2 - exactPairs) * width);
  all.forEach((shares, j) => {
    shares.forEach((share, m) => (table[m * width + j] = share));
  });
  return table;
}
