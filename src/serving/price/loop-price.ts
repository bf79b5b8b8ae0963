/** Prices of single passes over the looped layers, from the tables that price whole steps. */
import { isUncompressed } from '../../codecs/registry.js';
import type { Draft } from '../../codecs/verification.js';
import { attentionOf, type Bound, type PriceTables } from './price.js';
import { roundSeconds } from './round-price.js';
import type { MixedBatch } from '../scheduler/batch.js';
import type { LoopedScheduler, Sequence } from '../scheduler/looped.js';

/** Prices of passes over the looped layers. */
export interface LoopPricer {
  readonly knots: Float64Array;
  /**
   * One pass: the batch's sequences, and its chunks of prompts.
   * @param rowsEach rows of each sequence, which read its cache together
   */
  pass(batch: MixedBatch, rowsEach?: number): number;
  /** False where each row reads the cache for itself. */
  readonly readsTogether: boolean;
  /**
   * What an iteration has beside its passes: the server's own time, and what comes once a token or prompt.
   * @param begun sequences that begin a token
   * @param promptTokens tokens of chunks that begin
   * @param ended tokens that are chosen
   * @param skipped loops that those left out
   */
  outside(begun: number, promptTokens: number, ended: number, skipped: number): number;
  /** All loops of the batch's chunks, alone. */
  prompts(batch: MixedBatch): number;
}

/** The schedule's batch with so many rows of each sequence, of none where prompts come alone. */
export function rowsOf({ batch, sequences }: LoopedScheduler, rows: (sequence: Sequence) => number): MixedBatch {
  batch.clearSequences();
  if (batch.paused) return batch;
  for (const one of sequences) {
    const n = rows(one);
    if (n > 0) one.segment = batch.addRows(Math.max(1, one.cached), n, one.segment);
  }
  return batch;
}

const ONE_ROW = (): number => 1;
const WITH_FILLS = ({ fills }: Sequence): number => 1 + fills.length;

/** Seconds of the iteration that a schedule has begun: prompts alone, a round of proposals, a step, or one pass. */
export function loopedSeconds(schedule: LoopedScheduler, pricer: LoopPricer): number {
  const { batch, loops: all, passes, sequences, options } = schedule;
  if (batch.paused) return pricer.prompts(rowsOf(schedule, ONE_ROW));
  if (options.speculation) return roundOf(schedule, options.speculation, pricer);
  const outside = outsideOf(schedule, pricer);
  if (passes === 1) return pricer.pass(rowsOf(schedule, WITH_FILLS)) + outside;
  const keeps = options.depth.skippedKv === 'recompute';
  const prompted = schedule.running.length > sequences.length;
  const deepest = prompted || keeps ? all : sequences.reduce((most, { loops }) => Math.max(most, loops), 0);
  let seconds = outside;
  for (let loop = 0; loop < deepest; loop++)
    seconds += pricer.pass(rowsOf(schedule, keeps ? ONE_ROW : (one) => (one.loops > loop ? 1 : 0)));
  return seconds;
}

/** A round of proposals of all sequences. */
function roundOf(schedule: LoopedScheduler, { draftLoops, draftTokens: most }: Draft, pricer: LoopPricer): number {
  const { output, emitted } = schedule.requests;
  // The last token of an answer is never a proposal's.
  let left = 1;
  for (const { slot } of schedule.sequences) left = Math.max(left, output[slot]! - emitted[slot]!);
  const draftTokens = Math.min(most, left - 1);
  const rows = (): MixedBatch => rowsOf(schedule, () => draftTokens + 1);
  return roundSeconds({ draftLoops, draftTokens }, schedule.loops, pricer, rowsOf(schedule, ONE_ROW), rows);
}

/** What an iteration has beside its passes. */
function outsideOf(schedule: LoopedScheduler, pricer: LoopPricer): number {
  const { batch, loops: all, passes, sequences, chunkPasses, chunkSlots, requests } = schedule;
  const { chunks } = batch;
  // Tokens that begin and end within the iteration's passes, and loops that they leave out.
  let [begun, ended, skipped] = [0, 0, 0];
  for (const { done, loops } of sequences) {
    if (done === 0) begun++;
    if (done + passes < loops) continue;
    ended++;
    skipped += all - loops;
  }
  let begunTokens = 0;
  for (let i = 0; i < chunks.count; i++) {
    if (chunkPasses[i] === 0) begunTokens += chunks.tokens[i]!;
    const ends = chunks.before[i]! + chunks.tokens[i]! === requests.target[chunkSlots[i]!];
    if (chunkPasses[i]! + passes >= all && ends) ended++;
  }
  return pricer.outside(begun, begunTokens, ended, skipped);
}

/** Queries of a KV head that attention takes at once: a tile of FlashAttention's products has so many rows. */
const TILE_ROWS = 64;

/**
 * All passes of a step, and what it has beside them, are the step's price. Of the operations on tokens the looped
 * layers take their share of all layers.
 */
export class LoopCostPricer implements LoopPricer {
  readonly knots: Float64Array;
  readonly readsTogether: boolean;
  private readonly loops: number;
  /** Query heads of a KV head. */
  private readonly group: number;
  /** Share of the layers' work that is looped. */
  private readonly looped: number;

  constructor(
    private readonly tables: PriceTables,
    private readonly bound: Bound,
  ) {
    const { preludeLayers, layers, codaLayers, loops, heads, kvHeads } = tables.c.geometry;
    this.knots = tables.knots;
    this.group = heads / kvHeads;
    // Of latents there are kernels of a row a sequence only.
    this.readsTogether = isUncompressed(tables.c.codec);
    this.loops = loops;
    this.looped = (layers * loops) / (preludeLayers + layers * loops + codaLayers);
  }

  /** @param share of the batch's sequences that the pass takes */
  pass(batch: MixedBatch, rowsEach = 1, share = 1): number {
    const { tables, bound, loops, looped } = this;
    const { size, chunks } = batch;
    const rows = Math.max(1, Math.round(share * size)) * rowsEach;
    const reads = share * Math.ceil((rowsEach * this.group) / TILE_ROWS);
    const steps =
      size === 0 ? 0 : looped * tables.shared.at(rows) + tables.own.at(rows) + reads * attentionOf(tables, batch);
    let prompts = looped * (tables.shared.at(size + chunks.total) - (size === 0 ? 0 : tables.shared.at(size)));
    prompts += (tables.passes - 1) * looped * tables.shared.at(chunks.total);
    let wide = 0;
    for (let i = 0; i < chunks.count; i++) {
      const [tokens, before] = [chunks.tokens[i]!, chunks.before[i]!];
      prompts += tables.chunk.at(tokens, before);
      if (bound !== 'estimate') wide += (tokens / chunks.total) * tables.chunkWidth(bound, tokens, before);
    }
    if (bound === 'estimate') return (steps + prompts) / loops;
    return ((size === 0 ? 0 : steps * tables.stepWidth(bound, size, batch.meanLength)) + prompts * wide) / loops;
  }

  prompts(batch: MixedBatch): number {
    const { total, ending } = batch.chunks;
    return this.loops * this.pass(batch) + this.outside(0, total, ending);
  }

  outside(begun: number, promptTokens: number, ended: number): number {
    const { tables, bound, looped } = this;
    const rows = begun + promptTokens;
    const rest = (1 - looped) * (tables.shared.at(rows) + (tables.passes - 1) * tables.shared.at(promptTokens));
    const seconds = tables.overhead + rest + tables.head.at(ended);
    return bound === 'estimate' ? seconds : seconds * tables.stepWidth(bound, Math.max(1, begun), 1);
  }
}
