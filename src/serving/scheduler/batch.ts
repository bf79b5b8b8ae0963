/**
 * The sequences that a replica decodes, as its price needs them. Attention's time over a sequence is linear between two
 * knots of its length, so a batch is described by how many sequences lie in each segment and the sum of their lengths.
 * Every sequence grows by a token an iteration, so the sum of (length − iteration) does not change: an iteration costs
 * nothing here, and all state is whole numbers.
 */
export interface Chunks {
  /** Prompts that are worked on in the iteration. */
  count: number;
  /** Their tokens in the iteration, and tokens that are in the cache already. */
  readonly tokens: Float64Array;
  readonly before: Float64Array;
  /** Sum of `tokens`. */
  total: number;
  /** Prompts that end with the iteration: each gives a token. */
  ending: number;
}

/** Index of the last knot that is at most `x`. */
export function placeOf(knots: ArrayLike<number>, x: number): number {
  let low = 0;
  let high = knots.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (knots[middle]! <= x) low = middle;
    else high = middle;
  }
  return low;
}

export class MixedBatch {
  /** Sequences in each segment. */
  readonly counts: Float64Array;
  /** Sum of (length − iteration) of the sequences in each segment; length: tokens in the cache before the iteration. */
  readonly offsets: Float64Array;
  /** Sequences that decode. */
  size = 0;
  /** The iteration has prompts alone: sequences wait. */
  paused = false;
  /** Sum of (length − iteration) of all. */
  offset = 0;
  /** Number of the iteration. */
  iteration = 0;
  readonly chunks: Chunks;

  /** @param knots lengths at which segments begin, the first at most 1 */
  constructor(
    readonly knots: Float64Array,
    mostChunks: number,
  ) {
    this.counts = new Float64Array(knots.length);
    this.offsets = new Float64Array(knots.length);
    this.chunks = {
      count: 0,
      tokens: new Float64Array(mostChunks),
      before: new Float64Array(mostChunks),
      total: 0,
      ending: 0,
    };
  }

  /** Adds a sequence. @returns its segment */
  add(length: number): number {
    const segment = placeOf(this.knots, length);
    return this.addRows(length, 1, segment);
  }

  /** Adds rows of one length. @param from a segment at or before its own @returns its segment */
  addRows(length: number, rows: number, from: number): number {
    const { knots } = this;
    let segment = from;
    while (segment + 1 < knots.length && knots[segment + 1]! <= length) segment++;
    const sum = rows * (length - this.iteration);
    this.counts[segment]! += rows;
    this.offsets[segment]! += sum;
    this.size += rows;
    this.offset += sum;
    return segment;
  }

  remove(length: number, segment: number): void {
    this.counts[segment]!--;
    this.offsets[segment]! -= length - this.iteration;
    this.size--;
    this.offset -= length - this.iteration;
  }

  /** Moves a sequence that has reached the next knot. */
  advance(length: number, segment: number): void {
    this.counts[segment]!--;
    this.offsets[segment]! -= length - this.iteration;
    this.counts[segment + 1]!++;
    this.offsets[segment + 1]! += length - this.iteration;
  }

  /** Mean length of the sequences. */
  get meanLength(): number {
    return this.size === 0 ? 0 : this.offset / this.size + this.iteration;
  }

  /** Length of the longest sequences: the mean of those that have come to the last knot that any has come to. */
  get longestLength(): number {
    for (let j = this.counts.length - 1; j >= 0; j--)
      if (this.counts[j]! > 0) return this.offsets[j]! / this.counts[j]! + this.iteration;
    return 0;
  }

  clearSequences(): void {
    this.counts.fill(0);
    this.offsets.fill(0);
    this.size = 0;
    this.offset = 0;
  }

  clearChunks(): void {
    const { chunks } = this;
    chunks.count = 0;
    chunks.total = 0;
    chunks.ending = 0;
  }

  addChunk(tokens: number, before: number, ends: boolean): void {
    const { chunks } = this;
    chunks.tokens[chunks.count] = tokens;
    chunks.before[chunks.count] = before;
    chunks.count++;
    chunks.total += tokens;
    if (ends) chunks.ending++;
  }
}

/** What the engine asks of the cost model. */
export interface IterationPricer {
  /** Lengths between which attention's time over a sequence is taken as linear. */
  readonly knots: Float64Array;
  /** Seconds of one iteration. */
  seconds(batch: MixedBatch): number;
}
