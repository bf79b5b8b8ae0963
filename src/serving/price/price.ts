/**
 * The price of an iteration of a mixed batch, from the same operations as a plan's: decode steps of sequences of
 * different lengths, and chunks of prompts beside them.
 *
 *   overhead + shared(n + q) + (passes − 1) · shared(q) + head(n + ended) + own(n) + attention(lengths) + Σ chunk
 *
 * `shared`: operations whose rows are tokens (schedule/shared-ops.ts), priced on all tokens of the iteration; latents
 * take a second pass over the prompts' tokens alone. `own`: what a decode step has beside that, but for its attention.
 * `chunk`: attention and the codec's part of one prompt's chunk after what is cached of it. For a batch of equal
 * lengths without prompts, and for one prompt alone, this is the plan's own price.
 *
 * Everything is computed when it is first asked for. Attention is tabulated over batch × context and taken as linear
 * between neighbouring knots; chunks over tokens × tokens before them.
 */
import { isUncompressed, takesTwoPasses } from '../../codecs/registry.js';
import { isServer, priceCalls, type Pricer, type SchedulePrice } from '../../cost/latency.js';
import { allocatedTokens } from '../../eviction/policy.js';
import { STORAGE_BYTES } from '../../../kernels/op-class.js';
import { KERNELS, type KernelCall } from '../../../kernels/registry.js';
import { PREFILL_CHUNK_TOKENS, runSchedule, type WholePrompt } from '../../schedule/prefill/prefill.js';
import { asServersRead, OPERATIONS_OF_A_SUBMISSION } from '../../schedule/prefill/calls.js';
import { forEachOp } from '../../schedule/expand.js';
import { schedule, type Configuration, type Schedule } from '../../schedule/schedule.js';
import { headSchedule, labelsOf, sharedSchedule } from '../../schedule/shared-ops.js';
import { promptShare } from '../../schedule/streams.js';
import { unequalLoss } from '../../cost/unequal.js';
import { placeOf, type IterationPricer, type MixedBatch } from '../scheduler/batch.js';

/** Which end of the cost model's interval prices a run. */
export const BOUNDS = ['low', 'estimate', 'high'] as const;
export type Bound = (typeof BOUNDS)[number];

export interface PriceOptions {
  /** How a prompt's tokens become latents. */
  readonly method: WholePrompt;
  /** Tokens of a prompt that its kernels work on at once; absent: as lla-sim's decoder has it. */
  readonly chunkTokens?: number;
  /** Longest sequence, tokens. */
  readonly longest: number;
  /** Sequences that decode at once, at most. */
  readonly mostSequences: number;
}

/** 1, 2, 3, 4, 6, 8, 12, …: 2^k and 3·2^(k−1), up to the first that is at least `last`. */
function octaveKnots(last: number): number[] {
  const knots = [1];
  for (let power = 2; knots.at(-1)! < last; power *= 2) knots.push(power, ...(power < last ? [1.5 * power] : []));
  return [...new Set(knots)].filter((_, i, all) => i === 0 || all[i - 1]! < last);
}

/** Whole numbers, four to an octave, up to the first that is at least `last`. */
function quarterKnots(last: number): number[] {
  const knots = new Set([1]);
  for (let power = 1; ![...knots].some((n) => n >= last); power *= 2)
    for (const step of [1.25, 1.5, 1.75, 2]) knots.add(Math.ceil(power * step));
  return [...knots].sort((a, b) => a - b);
}

/** Contexts: attention's time is a straight line where they are long. */
function contextKnots(c: Configuration, longest: number): Float64Array {
  const most = longest + 1;
  const knots = octaveKnots(most).filter((n) => n === 1 || n >= 16);
  if (knots.at(-1)! <= most) knots.push(2 * most);
  // Where eviction begins the line bends; a cache that is full takes no more blocks.
  const cap = allocatedTokens(c.eviction, Infinity);
  const kept = c.eviction?.budgetTokens ?? Infinity;
  // Beyond a window of exact rows there are latents to read.
  const window = c.codec.windowTokens || Infinity;
  for (const bend of [cap, kept, window, window + 1]) if (bend < knots.at(-1)!) knots.push(bend);
  return Float64Array.from([...new Set(knots)].sort((a, b) => a - b));
}

/** True for operations of a step whose time depends on how much is cached. */
const readsContext = ({ kernel }: KernelCall): boolean =>
  KERNELS[kernel].dims.includes('context') || KERNELS[kernel].dims.includes('splits');

/** Rows up to here are priced one by one, more at this many numbers to an octave. */
const EXACT_ROWS = 256;

/** A function of a number of rows that is computed where it is asked for, and linear between. */
class Lazy {
  private readonly known = new Map<number, number>();
  private exact = new Float64Array(EXACT_ROWS + 1).fill(NaN);

  constructor(private readonly compute: (rows: number) => number) {}

  at(rows: number): number {
    if (rows <= EXACT_ROWS) {
      const value = this.exact[rows]!;
      return value === value ? value : (this.exact[rows] = this.compute(rows));
    }
    const step = 2 ** (Math.floor(Math.log2(rows)) - 7);
    const below = Math.floor(rows / step) * step;
    if (below === rows) return this.knot(rows);
    const share = (rows - below) / step;
    return (1 - share) * this.knot(below) + share * this.knot(below + step);
  }

  private knot(rows: number): number {
    let value = this.known.get(rows);
    if (value === undefined) this.known.set(rows, (value = this.compute(rows)));
    return value;
  }
}

/** A function on a grid, computed at a knot when it is first asked for, and linear between along both axes. */
class LazyGrid {
  private readonly values: Float64Array;

  constructor(
    private readonly rows: readonly number[],
    private readonly columns: readonly number[],
    private readonly compute: (row: number, column: number) => number,
  ) {
    this.values = new Float64Array(rows.length * columns.length).fill(NaN);
  }

  at(row: number, column: number): number {
    const i = placeOf(this.rows, row);
    const j = placeOf(this.columns, column);
    const u = shareOf(this.rows, i, row);
    const v = shareOf(this.columns, j, column);
    let sum = (1 - u) * (1 - v) * this.knot(i, j);
    if (u > 0) sum += u * (1 - v) * this.knot(i + 1, j);
    if (v > 0) sum += (1 - u) * v * this.knot(i, j + 1);
    if (u > 0 && v > 0) sum += u * v * this.knot(i + 1, j + 1);
    return sum;
  }

  private knot(i: number, j: number): number {
    const at = i * this.columns.length + j;
    const value = this.values[at]!;
    return value === value ? value : (this.values[at] = this.compute(this.rows[i]!, this.columns[j]!));
  }
}

const shareOf = (knots: readonly number[], i: number, x: number): number =>
  i + 1 < knots.length && x > knots[i]! ? (x - knots[i]!) / (knots[i + 1]! - knots[i]!) : 0;

/** What all bounds of one configuration share: tables of estimates, and of how wide their intervals are. */
export class PriceTables {
  readonly knots: Float64Array;
  readonly batches: readonly number[];
  readonly shared: Lazy;
  readonly head: Lazy;
  readonly own: Lazy;
  readonly chunk: LazyGrid;
  private launches: number | undefined;
  readonly overhead: number;
  /** Of the server, for each sequence of an iteration. */
  readonly perSequence: number;
  /** Of each sequence, for each of the GPU's units: 0 where a kernel does not give sequences blocks of their own. */
  readonly blocksPerUnit: number;
  /** Times by which attention of sequences of that mean length takes longer beside a prompt. */
  readonly besidePrompts: (sequences: number, length: number) => number;
  /** Passes of a prompt's tokens through the layers: a part of one where later loops take a part of them. */
  readonly passes: number;
  /** By batch knot: intercept and slope of a sequence's share of attention, for each segment. */
  private readonly lines: (Float64Array | undefined)[] = [];
  private readonly sharedLabels: ReadonlySet<string>;
  private readonly headLabels: ReadonlySet<string>;
  private readonly widths: Record<'low' | 'high', { step: LazyGrid; chunk: LazyGrid }>;

  constructor(
    readonly c: Configuration,
    private readonly pricer: Pricer,
    private readonly options: PriceOptions,
  ) {
    const { longest, mostSequences } = options;
    this.knots = contextKnots(c, longest);
    this.batches = octaveKnots(mostSequences);
    this.passes = takesTwoPasses(c.codec) ? 2 : promptShare(c);
    this.overhead = pricer.stepOverhead.estimate;
    const { heads, kvHeads, headDim } = c.geometry;
    const beside = isUncompressed(c.codec) ? pricer.besidePrompts : undefined;
    const rowBytes = 2 * headDim * STORAGE_BYTES;
    this.besidePrompts = (n, length) => beside?.(heads / kvHeads, n, n * length * rowBytes) ?? 1;
    const { units } = pricer;
    this.blocksPerUnit = units && isUncompressed(c.codec) ? Math.max(1, c.geometry.kvHeads / c.gpus) / units : 0;
    this.perSequence = pricer.sequenceOverhead?.estimate ?? 0;
    this.sharedLabels = labelsOf(sharedSchedule(c, 2));
    this.headLabels = labelsOf(headSchedule(c, 2));
    this.shared = new Lazy((rows) => (rows === 0 ? 0 : this.estimate(sharedSchedule(c, rows), () => true)));
    this.head = new Lazy((rows) => (rows === 0 ? 0 : this.estimate(headSchedule(c, rows), () => true)));
    this.own = new Lazy((rows) => this.ownOf(schedule(c, rows, 1)));
    const tokens = quarterKnots(longest);
    const before = [0, ...octaveKnots(longest).filter((n) => n >= 64)];
    this.chunk = new LazyGrid(tokens, before, (q, p) => this.chunkPart(q, p));
    const contexts = [...this.knots];
    const width = (bound: 'low' | 'high') => ({
      step: new LazyGrid(this.batches, contexts, (n, l) => relative(this.stepPrice(n, l), bound)),
      chunk: new LazyGrid(tokens, before, (q, p) => relative(this.runPrice(q, p), bound)),
    });
    this.widths = { low: width('low'), high: width('high') };
  }

  /** Sequences' shares of attention's time at the batch knot: intercepts and slopes in turn. */
  linesOf(batch: number): Float64Array {
    return (this.lines[batch] ??= this.computeLines(this.batches[batch]!));
  }

  /** The interval's end over the estimate, of a step of equal lengths. */
  stepWidth(bound: 'low' | 'high', batch: number, length: number): number {
    return this.widths[bound].step.at(batch, length);
  }

  /** The same of a chunk of a prompt, alone. */
  chunkWidth(bound: 'low' | 'high', tokens: number, before: number): number {
    return this.widths[bound].chunk.at(tokens, before);
  }

  /**
   * Seconds of attention over `batch` sequences of one length, with what else only longer ones have, as beyond a window
   * of exact rows; the exact price, not from a table.
   */
  attention(batch: number, length: number): number {
    const s = schedule(this.c, batch, length);
    const beyond = this.c.codec.windowTokens ? this.ownOf(s) - this.own.at(batch) : 0;
    return this.estimate(s, readsContext, (label) => label === 'mass') + beyond;
  }

  private ownOf(s: Schedule): number {
    return this.estimate(s, (op) => !readsContext(op), this.ownLabel);
  }

  private computeLines(batch: number): Float64Array {
    const { knots } = this;
    const at = Array.from(knots, (length) => this.attention(batch, length) / batch);
    const lines = new Float64Array(2 * knots.length);
    for (let j = 0; j < knots.length; j++) {
      // Beyond the last knot its line goes on.
      const i = Math.min(j, knots.length - 2);
      const slope = (at[i + 1]! - at[i]!) / (knots[i + 1]! - knots[i]!);
      lines[2 * j] = at[i]! - slope * knots[i]!;
      lines[2 * j + 1] = slope;
    }
    return lines;
  }

  /** H2O's exchange of masses is attention's. */
  private readonly ownLabel = (label: string): boolean => this.outside(label) && label !== 'mass';

  private readonly outside = (label: string): boolean => !this.sharedLabels.has(label) && !this.headLabels.has(label);

  private runOf(tokens: number, before: number, ends: boolean): Schedule {
    const { method, chunkTokens = PREFILL_CHUNK_TOKENS } = this.options;
    return runSchedule(this.c, { from: before, tokens }, { chunkTokens, method, ends });
  }

  /** Seconds of attention and codec of an iteration's chunks: a server makes one call of each kind for all of them. */
  chunksOf({ chunks: { count, tokens, before } }: MixedBatch): number {
    let seconds = 0;
    for (let i = 0; i < count; i++) seconds += this.chunk.at(tokens[i]!, before[i]!);
    return count > 1 ? seconds - (count - 1) * (this.launches ??= this.launchesOf()) : seconds;
  }

  /** What a chunk of one token takes: launches, nearly all of it. */
  private launchesOf(): number {
    return isServer(this.pricer) ? this.estimate(this.runOf(1, 0, false), () => true, this.outside) : 0;
  }

  private chunkPart(tokens: number, before: number): number {
    const run = this.runOf(tokens, before, false);
    const waits = this.submissionsOf(run) - 1;
    return this.estimate(run, () => true, this.outside, before + tokens) + waits * this.overhead;
  }

  private asRead(promptTokens: number): ReturnType<typeof asServersRead> {
    return isServer(this.pricer) ? asServersRead(this.c, promptTokens) : (call) => call;
  }

  private submissionsOf(run: Schedule): number {
    let operations = 0;
    forEachOp(this.c, run, (_, times) => (operations += times));
    return Math.max(1, Math.ceil(operations / OPERATIONS_OF_A_SUBMISSION));
  }

  private stepPrice(batch: number, length: number): SchedulePrice {
    return this.whole(schedule(this.c, batch, length), 1, batch);
  }

  private runPrice(tokens: number, before: number): SchedulePrice {
    const run = this.runOf(tokens, before, true);
    return this.whole(run, this.submissionsOf(run), 0, tokens + before);
  }

  /** @param promptTokens of a prompt's schedule */
  private whole(s: Schedule, submissions: number, sequences = 0, promptTokens = 0): SchedulePrice {
    const read = this.asRead(promptTokens);
    return priceCalls(this.pricer, this.c.gpus, (add) => {
      forEachOp(this.c, s, (op, times) => add(read(op), times));
      return { collectives: s.collectives, submissions, sequences };
    });
  }

  /** Seconds of those of a schedule's operations that pass, by what they are and by their labels. */
  private estimate(
    s: Schedule,
    passes: (call: KernelCall) => boolean,
    labelled: (label: string) => boolean = () => true,
    promptTokens = 0,
  ): number {
    const { c, pricer } = this;
    const read = this.asRead(promptTokens);
    let seconds = 0;
    forEachOp(c, s, (op, times) => {
      if (passes(op) && (readsContext(op) || labelled(op.label))) seconds += times * pricer.price(read(op)).estimate;
    });
    for (const { label, kind, bytesEach, calls } of s.collectives)
      if (labelled(label)) seconds += calls * (pricer.collective(kind, bytesEach, c.gpus)?.estimate ?? 0);
    return seconds;
  }
}

const relative = (price: SchedulePrice, bound: 'low' | 'high'): number => price[bound] / price.estimate;

/** Sequences that get a token in the iteration. */
const decoding = ({ paused, size }: MixedBatch): number => (paused ? 0 : size);

/** Prices iterations at one bound of the interval. */
export class CostModelPricer implements IterationPricer {
  readonly knots: Float64Array;

  constructor(
    private readonly tables: PriceTables,
    private readonly bound: Bound = 'estimate',
  ) {
    this.knots = tables.knots;
  }

  seconds(batch: MixedBatch): number {
    const { tables, bound } = this;
    const { chunks } = batch;
    const size = decoding(batch);
    let seconds = tables.overhead + tables.shared.at(size + chunks.total) + tables.head.at(size + chunks.ending);
    let attention = 0;
    if (size > 0) {
      const times = chunks.count > 0 ? tables.besidePrompts(size, batch.meanLength) : 1;
      attention = size * tables.perSequence + tables.own.at(size) + times * attentionOf(tables, batch);
      seconds += attention;
    }
    if (chunks.count > 0) {
      if (tables.passes > 1) seconds += tables.shared.at(chunks.total);
      seconds += tables.chunksOf(batch);
    }
    return bound === 'estimate' ? seconds : this.widened(batch, bound, seconds, attention);
  }

  /**
   * The interval's end: the plan's width of a step of the mean length for the decode part, and of the chunks for the
   * rest. Parts run on the same kernels, so their errors have one sign and add.
   */
  private widened(batch: MixedBatch, bound: 'low' | 'high', seconds: number, attention: number): number {
    const { tables } = this;
    const { chunks } = batch;
    const size = decoding(batch);
    const decode = size === 0 ? 0 : tables.overhead + tables.shared.at(size) + tables.head.at(size) + attention;
    let end = size === 0 ? 0 : decode * tables.stepWidth(bound, size, batch.meanLength);
    for (let i = 0; i < chunks.count; i++) {
      const share = chunks.tokens[i]! / chunks.total;
      end += (seconds - decode) * share * tables.chunkWidth(bound, chunks.tokens[i]!, chunks.before[i]!);
    }
    return end;
  }
}

/**
 * Seconds of attention of every sequence at its own length, between the two neighbouring batch knots.
 * @param rows sequences that the step has room for; those beyond the batch's hold one token
 */
export function attentionOf(tables: PriceTables, batch: MixedBatch, rows = batch.size): number {
  const { size, counts, offsets, iteration } = batch;
  const { batches, blocksPerUnit } = tables;
  const unequal = 1 + unequalLoss(blocksPerUnit * size, batch.longestLength / batch.meanLength);
  const at = (knot: number): number => {
    const lines = tables.linesOf(knot);
    const empty = (rows - size) * (lines[0]! + lines[1]!);
    return (sumOf(lines, counts, offsets, iteration) + empty) * batches[knot]!;
  };
  const below = placeOf(batches, rows);
  const share = shareOf(batches, below, rows);
  const first = at(below);
  return (unequal * (share === 0 ? first : (1 - share) * first + share * at(below + 1))) / rows;
}

/** Σ over segments of intercept · sequences + slope · sum of lengths. */
function sumOf(lines: Float64Array, counts: Float64Array, offsets: Float64Array, iteration: number): number {
  let sum = 0;
  for (let j = 0; j < counts.length; j++) {
    const n = counts[j]!;
    if (n !== 0) sum += lines[2 * j]! * n + lines[2 * j + 1]! * (offsets[j]! + n * iteration);
  }
  return sum;
}
