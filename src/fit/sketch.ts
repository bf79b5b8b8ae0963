/**
 * A covariance C that is too wide to be kept, as Y = C Ω: a random matrix Ω of fewer columns finds the range of C in
 * one pass over the vectors. Ω has eight signs a row (sparse sign embedding), so that C Ω costs little beside the sums
 * that a covariance costs too.
 *
 * Directions come from Nyström's Ĉ = Y (Ωᵀ Y)⁺ Yᵀ, made stable by a shift (Tropp, Yurtsever, Udell and Cevher 2017,
 * Algorithm 3). Because 0 ⪯ Ĉ ⪯ C, and tr C is summed exactly, what that costs is known without C:
 *
 *   the first r directions of Ĉ keep at least λ̂₁ + … + λ̂ᵣ of the variance,
 *   and no r directions keep more than λ̂₁ + … + λ̂ᵣ + tr(C − Ĉ).
 */
import { EigenvalueDecomposition, Matrix } from 'ml-matrix';
import { accumulate, dot } from '../decoder/reference/arithmetic.js';
import { mix } from '../numbers/hash.js';
import { randomFrom } from '../numbers/random.js';
import { sum } from '../numbers/statistics.js';
import { descending, type Basis } from './basis.js';
import { Moments } from './covariance.js';
import type { LatentEnergy } from './fit.js';

const SIGNS = 8;
const SEED = 0x736b6574;

/** Columns of Ω for directions of a rank. */
export const sketchColumns = (width: number, rank: number): number =>
  Math.min(width, rank + Math.max(16, Math.ceil(rank / 4)));

/** Row i of Ω: where its entries are, and +1 or −1. */
interface SparseRow {
  readonly columns: readonly number[];
  readonly signs: readonly number[];
}

function sparseRow(row: number, width: number): SparseRow {
  const random = randomFrom(mix(SEED + row));
  const columns = new Set<number>();
  while (columns.size < Math.min(SIGNS, width)) columns.add(Math.floor(random() * width));
  return { columns: [...columns], signs: [...columns].map(() => (random() < 0.5 ? -1 : 1)) };
}

/** Directions of a sketch, and how far their share of the variance is from the best one. */
export type SketchedBasis = Basis & Required<Pick<LatentEnergy, 'kept' | 'below'>>;

export class Sketch extends Moments {
  /** C Ω times the count, column by column: [column][width]. */
  private readonly image: readonly Float64Array[];
  private readonly rows: readonly SparseRow[];
  private readonly squares = new Float64Array(1);

  /** @param columns of Ω */
  constructor(
    width: number,
    readonly columns: number,
    centred = true,
  ) {
    super(width, centred);
    this.image = Array.from({ length: columns }, () => new Float64Array(width));
    this.rows = Array.from({ length: width }, (_, i) => sparseRow(i, columns));
  }

  /** Bytes of one; Ω is told by its seed, and its entries take less than two columns. */
  static bytes(width: number, columns: number): number {
    return 8 * width * (columns + 3) + 8 * SIGNS * 2 * width;
  }

  /** Bytes that `basis` takes beside it. */
  static basisBytes(width: number, columns: number, rank: number): number {
    return 8 * (width * (columns + 2 * rank) + 4 * columns * columns);
  }

  protected join(centred: readonly Float64Array[], delta: Float64Array, factor: number): void {
    const count = (centred[0] as Float64Array).length;
    const [mixed, shift] = this.times(centred, delta, count);
    let squares = 0;
    for (let i = 0; i < this.width; i++) {
      const own = centred[i] as Float64Array;
      squares += dot(own, own) + factor * (delta[i] as number) ** 2;
      for (let j = 0; j < this.columns; j++) {
        const column = this.image[j]!;
        column[i] = column[i]! + dot(own, mixed[j]!) + factor * delta[i]! * shift[j]!;
      }
    }
    this.squares[0] = (this.squares[0] as number) + squares;
  }

  /** Ωᵀ x of every vector, [column][vector], and Ωᵀ δ. */
  private times(
    centred: readonly Float64Array[],
    delta: Float64Array,
    count: number,
  ): [mixed: Float64Array[], shift: Float64Array] {
    const mixed = Array.from({ length: this.columns }, () => new Float64Array(count));
    const shift = new Float64Array(this.columns);
    this.rows.forEach(({ columns, signs }, i) =>
      columns.forEach((j, n) => {
        const sign = signs[n] as number;
        accumulate(mixed[j] as Float64Array, centred[i] as Float64Array, sign);
        shift[j] = (shift[j] as number) + sign * (delta[i] as number);
      }),
    );
    return [mixed, shift];
  }

  get trace(): number {
    return (this.squares[0] as number) / this.count;
  }

  get arrays(): readonly Float64Array[] {
    return [this.mean, this.squares, ...this.image];
  }

  /** The directions of the most variance of Nyström's approximation. */
  basis(rank: number): SketchedBasis {
    const { width, columns } = this;
    const total = this.squares[0] as number;
    const kept = Math.min(rank, columns);
    const vectors = new Float64Array(width * rank);
    if (total === 0) return { width, rank, vectors, variances: [], kept: 1, below: 0 };
    const { shifted, root, shift } = this.factored();
    // E = Y R⁻¹, so that E Eᵀ is Ĉ and the eigenvectors of Eᵀ E give its own.
    shifted.forEach((own, j) => {
      for (let k = 0; k < j; k++) accumulate(own, shifted[k] as Float64Array, -(root[j]?.[k] as number));
      const scale = 1 / root[j]![j]!;
      for (let i = 0; i < width; i++) own[i]! *= scale;
    });
    const gram = new Matrix(columns, columns);
    for (let j = 0; j < columns; j++)
      for (let k = 0; k <= j; k++) {
        const value = dot(shifted[j]!, shifted[k]!);
        gram.set(j, k, value);
        gram.set(k, j, value);
      }
    const { realEigenvalues: ascending, eigenvectorMatrix } = new EigenvalueDecomposition(gram, {
      assumeSymmetric: true,
    });
    const order = descending(ascending);
    const largest = ascending[order[0] as number] as number;
    const direction = new Float64Array(width);
    for (let r = 0; r < kept; r++) {
      const from = order[r] as number;
      const value = ascending[from] as number;
      // Directions that nothing lies along stay zero.
      if (value <= 1e-13 * largest) continue;
      direction.fill(0);
      shifted.forEach((own, j) => accumulate(direction, own, eigenvectorMatrix.get(j, from) / Math.sqrt(value)));
      for (let i = 0; i < width; i++) vectors[i * rank + r] = direction[i] as number;
    }
    const variances = order.map((i) => Math.max(0, (ascending[i] as number) - shift) / this.count);
    const share = (own: readonly number[]): number => (sum(own) * this.count) / total;
    return {
      width,
      rank,
      vectors,
      variances,
      kept: share(variances.slice(0, kept)),
      below: Math.max(0, 1 - share(variances)),
    };
  }

  /** Y + νΩ, and Cholesky's L of Ωᵀ (Y + νΩ) by rows. ν grows until there is one. */
  private factored(): { shifted: Float64Array[]; root: Float64Array[]; shift: number } {
    const size = Math.sqrt(sum(this.image.map((own) => dot(own, own))));
    for (let shift = Number.EPSILON * size; ; shift *= 100) {
      const shifted = this.image.map((own) => own.slice());
      this.rows.forEach(({ columns, signs }, i) => columns.forEach((j, n) => (shifted[j]![i]! += shift * signs[n]!)));
      const root = cholesky(this.projected(shifted));
      if (root) return { shifted, root, shift };
    }
  }

  /** Ωᵀ Y, [column][column], its lower triangle made symmetric. */
  private projected(image: readonly Float64Array[]): Float64Array[] {
    const { columns } = this;
    const out = Array.from({ length: columns }, () => new Float64Array(columns));
    this.rows.forEach(({ columns: at, signs }, i) =>
      at.forEach((j, n) => {
        for (let k = 0; k < columns; k++) out[j]![k]! += signs[n]! * image[k]![i]!;
      }),
    );
    for (let j = 0; j < columns; j++) for (let k = 0; k < j; k++) out[j]![k] = (out[j]![k]! + out[k]![j]!) / 2;
    return out;
  }
}

/** L of L Lᵀ by rows, in place; null where the matrix is not positive definite. */
function cholesky(rows: Float64Array[]): Float64Array[] | null {
  for (let j = 0; j < rows.length; j++) {
    const own = rows[j] as Float64Array;
    for (let k = 0; k <= j; k++) {
      const other = rows[k] as Float64Array;
      let sum = own[k] as number;
      for (let i = 0; i < k; i++) sum -= (own[i] as number) * (other[i] as number);
      if (k < j) own[k] = sum / (other[k] as number);
      else if (sum > 0) own[k] = Math.sqrt(sum);
      else return null;
    }
  }
  return rows;
}
