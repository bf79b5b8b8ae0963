/**
 * The price of an iteration of the bundled decoder under its serving loop (decoder/serving/loop.ts): a decode step of
 * all the sequences that it was opened for, then every prompt's chunk by itself. A server's kernels take prompts and
 * sequences together, and weights are read once (serving/price/price.ts).
 */
import type { Draft } from '../codecs/verification.js';
import { priceCalls, type Pricer } from '../cost/latency.js';
import { expand } from '../schedule/expand.js';
import { schedule, type Configuration } from '../schedule/schedule.js';
import type { IterationPricer, MixedBatch } from '../serving/scheduler/batch.js';
import { attentionOf, type PriceTables } from '../serving/price/price.js';

/** Prices as a rehearsal corrects them: a factor of steps, and a line over the price of a chunk. */
export interface Correction {
  readonly step: number;
  readonly chunk: { readonly scale: number; readonly seconds: number };
}

const NONE: Correction = { step: 1, chunk: { scale: 1, seconds: 0 } };

export class ApartPricer implements IterationPricer {
  readonly knots: Float64Array;

  /**
   * @param sequences that the decoder was opened for: rows without a request are computed too
   * @param round seconds of a round of them, by their mean length; steps are rounds where it is given
   */
  constructor(
    private readonly tables: PriceTables,
    private readonly sequences: number,
    private readonly round: ((length: number) => number) | null = null,
    private readonly correction = NONE,
  ) {
    this.knots = tables.knots;
  }

  correctedBy(correction: Correction): ApartPricer {
    return new ApartPricer(this.tables, this.sequences, this.round, correction);
  }

  seconds(batch: MixedBatch): number {
    const { chunks } = batch;
    const { scale } = this.correction.chunk;
    let seconds = batch.size > 0 ? this.stepSeconds(batch) : 0;
    for (let i = 0; i < chunks.count; i++) seconds += this.chunkSeconds(chunks.tokens[i]!, chunks.before[i]!, false);
    return seconds + scale * chunks.ending * this.tables.head.at(1);
  }

  /** A decode step, or a round, of the batch's sequences, at least one. */
  stepSeconds(batch: MixedBatch): number {
    const { tables, sequences, round, correction } = this;
    if (round) return correction.step * round((batch.size * batch.meanLength) / sequences);
    return (
      correction.step *
      (tables.overhead +
        tables.shared.at(sequences) +
        tables.head.at(sequences) +
        tables.own.at(sequences) +
        attentionOf(tables, batch, sequences))
    );
  }

  /** A part of a prompt. @param ends true where its prompt ends, and a token is chosen */
  chunkSeconds(tokens: number, before: number, ends: boolean): number {
    const { tables, correction } = this;
    return (
      correction.chunk.seconds +
      correction.chunk.scale *
        (tables.overhead +
          tables.passes * tables.shared.at(tokens) +
          tables.chunk.at(tokens, before) +
          (ends ? tables.head.at(1) : 0))
    );
  }
}

/** Seconds of a round of the bundled decoder, from its own operations, by the mean length of its sequences. */
export function roundPrice(
  c: Configuration,
  pricer: Pricer,
  sequences: number,
  { draftLoops, draftTokens }: Draft,
): (length: number) => number {
  const pass = (rows: number, context: number, inTurn: boolean, loops?: number): number => {
    const listed = schedule(c, rows, context, { inTurn });
    return priceCalls(pricer, c.gpus, (add) => {
      for (const { op } of expand(c, listed, loops)) add(op, 1);
      return { collectives: listed.collectives, submissions: 1, sequences: rows };
    }).estimate;
  };
  // Attention's time is linear in a sequence's length.
  const priceOf = (context: number): number =>
    draftTokens * pass(sequences, context + Math.round((draftTokens - 1) / 2), false, draftLoops) +
    pass(sequences * (draftTokens + 1), context + Math.round(draftTokens / 2), true);
  const known = new Map<number, number>();
  return (length) => {
    const context = Math.max(1, Math.round(length));
    const seconds = known.get(context) ?? priceOf(context);
    known.set(context, seconds);
    return seconds;
  };
}
