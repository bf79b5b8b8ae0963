/**
 * Covariance of a stream of vectors in float64. Each block is centred by its own mean and joined to what came before
 * (Chan, Golub and LeVeque 1979, the pairwise update), so that no large mean is subtracted from large squares.
 */
export class Covariance {
  count = 0;
  readonly mean: Float64Array;
  /** Σ (x − mean)(x − mean)ᵀ, [width][width]; the upper triangle is kept up to date. */
  private readonly products: Float64Array;

  constructor(readonly width: number) {
    this.mean = new Float64Array(width);
    this.products = new Float64Array(width * width);
  }

  /** Bytes of one of this width. */
  static bytes(width: number): number {
    return 8 * width * (width + 1);
  }

  /** Joins a block of vectors. @param columns [width][count]: component i of all vectors, then component i + 1 */
  add(columns: readonly Float64Array[], count: number): void {
    const { width, mean, products } = this;
    if (count === 0) return;
    const delta = new Float64Array(width);
    const centred = columns.map((column, i) => {
      let sum = 0;
      for (let n = 0; n < count; n++) sum += column[n] as number;
      const own = sum / count;
      delta[i] = own - (mean[i] as number);
      return column.map((x) => x - own);
    });
    const total = this.count + count;
    const factor = (this.count * count) / total;
    for (let i = 0; i < width; i++) {
      const a = centred[i] as Float64Array;
      const shift = factor * (delta[i] as number);
      for (let j = i; j < width; j++) {
        const b = centred[j] as Float64Array;
        let sum = 0;
        for (let n = 0; n < count; n++) sum += (a[n] as number) * (b[n] as number);
        products[i * width + j] = (products[i * width + j] as number) + sum + shift * (delta[j] as number);
      }
    }
    for (let i = 0; i < width; i++) mean[i] = (mean[i] as number) + ((delta[i] as number) * count) / total;
    this.count = total;
  }

  /** Element of the covariance (divided by the count). */
  at(i: number, j: number): number {
    const [a, b] = i <= j ? [i, j] : [j, i];
    return (this.products[a * this.width + b] as number) / this.count;
  }

  /** The covariance as rows. @param size of its leading block; all of it unless given */
  rows(size = this.width): number[][] {
    return Array.from({ length: size }, (_, i) => Array.from({ length: size }, (_, j) => this.at(i, j)));
  }

  /** Sum of the variances. */
  get trace(): number {
    let sum = 0;
    for (let i = 0; i < this.width; i++) sum += this.at(i, i);
    return sum;
  }
}
