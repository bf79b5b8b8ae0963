/**
 * Prices of single passes over the looped layers, from the tables that price whole steps; of rounds of speculation, and
 * where they are faster than tokens one by one; and of both under a runtime.
 */
import { isUncompressed } from '../../codecs/registry.js';
import type { Draft } from '../../codecs/verification.js';
import { attentionOf, type Bound, type PriceTables } from './price.js';
import type { Geometry } from '../../geometry/geometry.js';
import { furthest } from '../../numbers/halving.js';
import type { Runtime } from '../../stacks/runtime.js';
import { MixedBatch } from '../scheduler/batch.js';
import type { LoopedScheduler, Sequence } from '../scheduler/looped.js';
import { tokensPerRound, type Speculation } from '../speculation.js';

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
    prompts += tables.chunksOf(batch);
    if (bound === 'estimate') return (steps + prompts) / loops;
    let wide = 0;
    for (let i = 0; i < chunks.count; i++) {
      const [tokens, before] = [chunks.tokens[i]!, chunks.before[i]!];
      wide += (tokens / chunks.total) * tables.chunkWidth(bound, tokens, before);
    }
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

/** Passes, boundaries and prompts under a runtime, from the prices of their kernels. */
export class RuntimeLoopPricer implements LoopPricer {
  readonly knots: Float64Array;
  private readonly kernels: Readonly<Record<Bound, LoopCostPricer>>;
  /** Share of the layers outside the loops that lie before them. */
  private readonly before: number;
  private readonly geometry: Geometry;
  readonly readsTogether: boolean;

  constructor(
    private readonly runtime: Runtime,
    tables: PriceTables,
    private readonly bound: Bound,
  ) {
    const of = (end: Bound): LoopCostPricer => new LoopCostPricer(tables, end);
    this.kernels = { low: of('low'), estimate: of('estimate'), high: of('high') };
    this.knots = tables.knots;
    this.geometry = tables.c.geometry;
    this.readsTogether = runtime.choice.attention.packsQueries;
    const { preludeLayers, codaLayers } = this.geometry;
    this.before = preludeLayers / Math.max(1, preludeLayers + codaLayers);
  }

  pass(batch: MixedBatch, rowsEach = 1): number {
    const { size } = batch;
    if (size === 0) return 0;
    const sequences = this.runtime.rowsOfPass(size);
    const share = sequences / size;
    return this.priced((kernels, launch) => {
      const ends = { kernels: kernels.pass(batch, rowsEach, share), launch };
      return this.runtime.pass(sequences * rowsEach, ends) / share;
    });
  }

  outside(begun: number, _promptTokens: number, ended: number, skipped: number): number {
    const { preludeLayers, codaLayers } = this.geometry;
    if (begun + ended === 0) return 0;
    return this.priced((kernels, launch) => {
      const all = kernels.outside(begun, 0, ended);
      const at = (share: number) => ({ kernels: share * all, launch });
      return (
        (begun > 0 ? this.runtime.boundary(preludeLayers, at(this.before)) : 0) +
        (ended > 0 ? this.runtime.boundary(codaLayers, at(1 - this.before)) : 0) +
        this.runtime.copies(skipped, launch)
      );
    });
  }

  prompts(batch: MixedBatch): number {
    const { total, ending } = batch.chunks;
    const { loops, codaLayers } = this.geometry;
    return this.priced((kernels, launch) => {
      const all = loops * kernels.pass(batch) + kernels.outside(0, total, ending);
      const chosen = ending > 0 ? this.runtime.boundary(codaLayers, { kernels: 0, launch }) : 0;
      return this.runtime.chunk(total, { kernels: all, launch }) + chosen;
    });
  }

  private priced(seconds: (kernels: LoopCostPricer, launch: number) => number): number {
    const { runtime, bound, kernels } = this;
    const { host } = runtime.source;
    const estimate = seconds(kernels.estimate, host.estimate);
    if (bound === 'estimate' || estimate === 0) return estimate;
    return runtime.widened(estimate, bound, seconds(kernels[bound], host[bound]));
  }
}

/**
 * Seconds of a round of all sequences of a batch (speculation.ts).
 * @param batch a row a sequence @param rows the same sequences with K + 1 rows each, where each reads for itself
 */
export function roundSeconds(
  { draftLoops, draftTokens }: Draft,
  loops: number,
  pricer: LoopPricer,
  batch: MixedBatch,
  rows: () => MixedBatch,
): number {
  const n = batch.size;
  const drafts = draftLoops * (draftTokens + 1) * pricer.pass(batch);
  const outside = draftTokens * pricer.outside(n, 0, n, 0) + pricer.outside(n, 0, n * (draftTokens + 1), 0);
  const verified = pricer.readsTogether ? pricer.pass(batch, draftTokens + 1) : pricer.pass(rows());
  return drafts + (loops - draftLoops) * verified + outside;
}

function batchOf(pricer: LoopPricer, rows: number, length: number): MixedBatch {
  const batch = new MixedBatch(pricer.knots, 1);
  for (let i = 0; i < rows; i++) batch.add(length);
  return batch;
}

/** Where rounds are faster than tokens one by one. */
export function whereItPays(
  of: Speculation,
  loops: number,
  pricer: LoopPricer,
  at: { readonly length: number; readonly sequences: number; readonly mostSequences: number },
): { readonly paysFromAcceptance: number | null; readonly paysUpToSequences: number } {
  const given = tokensPerRound(of);
  /** Tokens of a round that take as long one by one. */
  const breakEven = (sequences: number): number => {
    const batch = batchOf(pricer, sequences, at.length);
    const step = loops * pricer.pass(batch) + pricer.outside(sequences, 0, sequences, 0);
    const rows = (): MixedBatch => batchOf(pricer, sequences * (of.draftTokens + 1), at.length);
    return roundSeconds(of, loops, pricer, batch, rows) / step;
  };
  const wanted = breakEven(at.sequences);
  const pays = (sequences: number): boolean => breakEven(sequences) < given;
  // Rounds have more rows than steps, so that they lose more the more sequences there are.
  const paysUpToSequences = pays(at.mostSequences) ? at.mostSequences : furthest(0, at.mostSequences, pays);
  const acceptance = Array.from({ length: 1001 }, (_, i) => i / 1000).find(
    (p) => tokensPerRound({ ...of, acceptance: p }) >= wanted,
  );
  return { paysFromAcceptance: acceptance ?? null, paysUpToSequences };
}
