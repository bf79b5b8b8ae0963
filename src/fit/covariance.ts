/**
 * What is kept of a stream of vectors: its mean, and its covariance or a sketch of it (sketch.ts). Each block is
 * centred by its own mean and joined to what came before (Chan, Golub and LeVeque 1979, the pairwise update), so that
 * no large mean is subtracted from large squares.
 */
import { dot } from '../decoder/reference/arithmetic.js';

/** Vectors that are centred together: their copy is small beside what is kept. */
export const BLOCK = 512;

const [ROWS, COLUMNS] = [2, 4];

/**
 * `dot` of two vectors and four others: sums that are made together wait for each other less, and read less memory.
 * @param sums [2][4]
 */
function tile(rows: readonly Float64Array[], i: number, j: number, sums: Float64Array): void {
  const [p, q] = [rows[i]!, rows[i + 1]!];
  const [a, b, c, d] = [rows[j]!, rows[j + 1]!, rows[j + 2]!, rows[j + 3]!];
  let [pa, pb, pc, pd, qa, qb, qc, qd] = [0, 0, 0, 0, 0, 0, 0, 0];
  for (let n = 0; n < p.length; n++) {
    const x = p[n] as number;
    const y = q[n] as number;
    pa += x * (a[n] as number);
    pb += x * (b[n] as number);
    pc += x * (c[n] as number);
    pd += x * (d[n] as number);
    qa += y * (a[n] as number);
    qb += y * (b[n] as number);
    qc += y * (c[n] as number);
    qd += y * (d[n] as number);
  }
  sums.set([pa, pb, pc, pd, qa, qb, qc, qd]);
}

export abstract class Moments {
  count = 0;
  readonly mean: Float64Array;

  /** @param centred false: second moments about 0, and no mean is kept */
  constructor(
    readonly width: number,
    private readonly centred = true,
  ) {
    this.mean = new Float64Array(width);
  }

  /** Joins a block of vectors. @param columns [width][count]: component i of all vectors, then component i + 1 */
  add(columns: readonly Float64Array[], count: number): void {
    for (let from = 0; from < count; from += BLOCK) {
      const size = Math.min(BLOCK, count - from);
      const delta = new Float64Array(this.width);
      const centred = columns.map((column, i) => {
        const own = column.slice(from, from + size);
        let sum = 0;
        for (const x of own) sum += x;
        const average = this.centred ? sum / size : 0;
        delta[i] = average - (this.mean[i] as number);
        for (let n = 0; n < size; n++) own[n] = (own[n] as number) - average;
        return own;
      });
      const total = this.count + size;
      this.join(centred, delta, (this.count * size) / total);
      for (let i = 0; i < this.width; i++) this.mean[i]! += (delta[i]! * size) / total;
      this.count = total;
    }
  }

  /**
   * Adds Σ x xᵀ of centred vectors and factor · δ δᵀ, or the part of them that is kept.
   * @param centred [width][vector]
   * @param delta their mean less the mean so far
   */
  protected abstract join(centred: readonly Float64Array[], delta: Float64Array, factor: number): void;

  abstract get trace(): number;

  /** Everything that is kept beside the count, to be saved and filled again. */
  abstract get arrays(): readonly Float64Array[];
}

export class Covariance extends Moments {
  /** Σ (x − mean)(x − mean)ᵀ, [width][width]; the upper triangle is kept up to date. */
  private readonly products: Float64Array;

  constructor(width: number, centred = true) {
    super(width, centred);
    this.products = new Float64Array(width * width);
  }

  static bytes(width: number): number {
    return 8 * width * (width + 1);
  }

  /** Bytes that its eigenvectors take beside it. */
  static basisBytes(width: number, rank: number): number {
    return 8 * width * (width + 4 * rank);
  }

  protected join(centred: readonly Float64Array[], delta: Float64Array, factor: number): void {
    const { width, products } = this;
    const sums = new Float64Array(ROWS * COLUMNS);
    for (let top = 0; top < width; top += ROWS) {
      for (let from = top; from < width; from += COLUMNS) {
        const whole = top + ROWS <= width && from + COLUMNS <= width;
        if (whole) tile(centred, top, from, sums);
        for (let i = top; i < Math.min(top + ROWS, width); i++)
          for (let j = Math.max(i, from); j < Math.min(from + COLUMNS, width); j++) {
            const at = i * width + j;
            const sum = whole ? sums[(i - top) * COLUMNS + j - from]! : dot(centred[i]!, centred[j]!);
            products[at] = products[at]! + sum + factor * delta[i]! * delta[j]!;
          }
      }
    }
  }

  /** Element of the covariance (divided by the count). */
  at(i: number, j: number): number {
    const [a, b] = i <= j ? [i, j] : [j, i];
    return (this.products[a * this.width + b] as number) / this.count;
  }

  /** The covariance times the count, row-major: both triangles. @param size of its leading block */
  symmetric(size = this.width): Float64Array {
    const { width, products } = this;
    for (let i = 0; i < width; i++)
      for (let j = 0; j < i; j++) products[i * width + j] = products[j * width + i] as number;
    if (size === width) return products;
    const block = new Float64Array(size * size);
    for (let i = 0; i < size; i++) block.set(products.subarray(i * width, i * width + size), i * size);
    return block;
  }

  get trace(): number {
    let sum = 0;
    for (let i = 0; i < this.width; i++) sum += this.at(i, i);
    return sum;
  }

  get arrays(): readonly Float64Array[] {
    return [this.mean, this.products];
  }
}
