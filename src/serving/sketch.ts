/**
 * Percentiles of a stream in constant memory, linear between ranks (type 7 of Hyndman and Fan 1996), as numpy and
 * vLLM's benchmark have them. Up to EXACT_VALUES values are kept, and percentiles are exact. Of more only counts are
 * kept, in buckets whose bounds grow by a constant factor, as DDSketch does (Masson, Rim, Lee, VLDB 2019): a percentile
 * between SMALLEST and LARGEST is then within RELATIVE_ERROR of the exact one. Mean and standard deviation are exact.
 * Packages of DDSketch keep no exact values and take no line between ranks: figures would change.
 */

/** Most values whose percentiles are exact. */
export const EXACT_VALUES = 10_000;
/** Of fewer values the 99th percentile lies between the two largest. */
export const LEAST_FOR_P99 = 100;
/** Bound of a percentile's error relative to the value, where there are more. */
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
  /** Every value; null once there are too many. */
  private kept: Float64Array | null;
  private inOrder = true;
  private zeros = 0;
  private sum = 0;
  private squares = 0;
  private most = 0;
  private least = Infinity;
  count = 0;

  /** @param exactValues most values whose percentiles are exact */
  constructor(exactValues = EXACT_VALUES) {
    this.kept = new Float64Array(exactValues);
  }

  /** Whether percentiles are exact. */
  get isExact(): boolean {
    return this.kept !== null;
  }

  /** @param weight how often the value occurred */
  add(value: number, weight = 1): void {
    this.count += weight;
    this.sum += weight * value;
    this.squares += weight * value * value;
    if (value > this.most) this.most = value;
    if (value < this.least) this.least = value;
    this.keep(value, weight);
    if (value < SMALLEST) {
      this.zeros += weight;
      return;
    }
    const bucket = Math.ceil(Math.log(value) / LOG_GAMMA) - FIRST;
    this.counts[bucket < BUCKETS ? bucket : BUCKETS - 1]! += weight;
  }

  /** Of a value that is counted already. */
  private keep(value: number, weight: number): void {
    if (this.kept !== null && this.count > this.kept.length) this.kept = null;
    this.kept?.fill(value, this.count - weight, this.count);
    this.inOrder = false;
  }

  get mean(): number | null {
    return this.count === 0 ? null : this.sum / this.count;
  }

  get total(): number {
    return this.sum;
  }

  /** Standard deviation of the values themselves, as vLLM's benchmark prints it. */
  get std(): number | null {
    if (this.count === 0) return null;
    const mean = this.sum / this.count;
    return Math.sqrt(Math.max(0, this.squares / this.count - mean * mean));
  }

  /** The percentile of a share from 0 to 1; null of no values. */
  quantile(share: number): number | null {
    if (this.count === 0) return null;
    const rank = share * (this.count - 1);
    const below = Math.floor(rank);
    const value = this.at(below);
    return rank === below ? value : value + (rank - below) * (this.at(below + 1) - value);
  }

  /** The value of a rank, 0 for the smallest: itself, or the middle of its bucket by relative distance. */
  private at(rank: number): number {
    if (this.kept !== null) {
      if (!this.inOrder) this.kept.subarray(0, this.count).sort();
      this.inOrder = true;
      return this.kept[rank]!;
    }
    if (rank === this.count - 1) return this.most;
    let seen = this.zeros;
    if (rank < seen) return this.least;
    for (let i = 0; i < BUCKETS; i++) {
      seen += this.counts[i]!;
      if (rank < seen) {
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
