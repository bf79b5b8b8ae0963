/**
 * Percentiles of a stream in constant memory: counts in buckets whose bounds grow by a constant factor, as DDSketch
 * does (Masson, Rim, Lee, VLDB 2019). A percentile is within RELATIVE_ERROR of the exact one; mean and standard
 * deviation are exact.
 */

/** Bound of a percentile's error relative to the value. */
export const RELATIVE_ERROR = 0.001;

const GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR);
const LOG_GAMMA = Math.log(GAMMA);
/** Seconds: less counts as zero, more as the largest. */
const SMALLEST = 1e-9;
const LARGEST = 1e9;
const FIRST = Math.floor(Math.log(SMALLEST) / LOG_GAMMA);
const BUCKETS = Math.ceil(Math.log(LARGEST) / LOG_GAMMA) - FIRST + 1;

/** Statistics of one metric, base units. All are null where nothing was counted. */
export interface Distribution {
  readonly mean: number | null;
  readonly median: number | null;
  readonly std: number | null;
  readonly p90: number | null;
  readonly p95: number | null;
  readonly p99: number | null;
}

/** Counts non-negative values. */
export class Sketch {
  private readonly counts = new Float64Array(BUCKETS);
  private zeros = 0;
  private sum = 0;
  private squares = 0;
  private most = 0;
  private least = Infinity;
  count = 0;

  /** @param weight how often the value occurred */
  add(value: number, weight = 1): void {
    this.count += weight;
    this.sum += weight * value;
    this.squares += weight * value * value;
    if (value > this.most) this.most = value;
    if (value < this.least) this.least = value;
    if (value < SMALLEST) {
      this.zeros += weight;
      return;
    }
    const bucket = Math.ceil(Math.log(value) / LOG_GAMMA) - FIRST;
    this.counts[bucket < BUCKETS ? bucket : BUCKETS - 1]! += weight;
  }

  /** Adds what another one counted. */
  merge(other: Sketch): void {
    for (let i = 0; i < BUCKETS; i++) this.counts[i]! += other.counts[i]!;
    this.zeros += other.zeros;
    this.sum += other.sum;
    this.squares += other.squares;
    this.count += other.count;
    this.most = Math.max(this.most, other.most);
    this.least = Math.min(this.least, other.least);
  }

  get mean(): number | null {
    return this.count === 0 ? null : this.sum / this.count;
  }

  get total(): number {
    return this.sum;
  }

  get maximum(): number | null {
    return this.count === 0 ? null : this.most;
  }

  /** Standard deviation of the values themselves, as vLLM's benchmark prints it. */
  get std(): number | null {
    if (this.count === 0) return null;
    const mean = this.sum / this.count;
    return Math.sqrt(Math.max(0, this.squares / this.count - mean * mean));
  }

  /** The value that `share` (0 to 1) of the values do not exceed. */
  quantile(share: number): number | null {
    if (this.count === 0) return null;
    const rank = share * (this.count - 1);
    let seen = this.zeros;
    if (rank < seen) return Math.max(0, this.least);
    for (let i = 0; i < BUCKETS; i++) {
      seen += this.counts[i]!;
      if (rank < seen) {
        // The middle of the bucket by relative distance.
        const value = (2 * Math.exp((i + FIRST) * LOG_GAMMA)) / (GAMMA + 1);
        return Math.min(this.most, Math.max(this.least, value));
      }
    }
    return this.most;
  }

  distribution(): Distribution {
    return {
      mean: this.mean,
      median: this.quantile(0.5),
      std: this.std,
      p90: this.quantile(0.9),
      p95: this.quantile(0.95),
      p99: this.quantile(0.99),
    };
  }
}
