/**
 * Batch, waiting requests and cache over time, in bounded memory: means over intervals that double as the run goes on.
 */

const MOST_POINTS = 256;

export interface TimelinePoint {
  /** End of the interval, seconds. */
  readonly time: number;
  /** Means over the interval, weighted by time, all replicas together. */
  readonly running: number;
  readonly waiting: number;
  readonly usedBlocks: number;
}

export class Timeline {
  private readonly sums = new Float64Array(3 * MOST_POINTS);
  private begin = NaN;
  private width = 1;
  private last = 0;

  /** @param now end of a stretch of `seconds` in which these held */
  add(now: number, seconds: number, running: number, waiting: number, usedBlocks: number): void {
    if (Number.isNaN(this.begin)) this.begin = now - seconds;
    while (now - this.begin > this.width * MOST_POINTS) this.halve();
    let from = now - seconds;
    for (let at = Math.max(0, Math.floor((from - this.begin) / this.width)); at < MOST_POINTS; at++) {
      const until = Math.min(now, this.begin + (at + 1) * this.width);
      const part = Math.max(0, until - from);
      this.sums[3 * at]! += part * running;
      this.sums[3 * at + 1]! += part * waiting;
      this.sums[3 * at + 2]! += part * usedBlocks;
      if (at > this.last) this.last = at;
      if (until >= now) break;
      from = until;
    }
  }

  points(): TimelinePoint[] {
    return Array.from({ length: Number.isNaN(this.begin) ? 0 : this.last + 1 }, (_, i) => ({
      time: this.begin + (i + 1) * this.width,
      running: this.sums[3 * i]! / this.width,
      waiting: this.sums[3 * i + 1]! / this.width,
      usedBlocks: this.sums[3 * i + 2]! / this.width,
    }));
  }

  private halve(): void {
    for (let i = 0; i < MOST_POINTS / 2; i++)
      for (let k = 0; k < 3; k++) this.sums[3 * i + k] = this.sums[6 * i + k]! + this.sums[6 * i + 3 + k]!;
    this.sums.fill(0, (3 * MOST_POINTS) / 2);
    this.width *= 2;
    this.last = Math.floor(this.last / 2);
  }
}
