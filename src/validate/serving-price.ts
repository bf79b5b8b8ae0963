/**
 * The price of an iteration of the bundled decoder under its serving loop (decoder/serving/loop.ts): a decode step of
 * all the sequences that it was opened for, then every prompt's chunk by itself. A server's kernels take prompts and
 * sequences together, and weights are read once (serving/price/price.ts).
 */
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

  /** @param sequences that the decoder was opened for: rows without a request are computed too */
  constructor(
    private readonly tables: PriceTables,
    private readonly sequences: number,
    private readonly correction = NONE,
  ) {
    this.knots = tables.knots;
  }

  correctedBy(correction: Correction): ApartPricer {
    return new ApartPricer(this.tables, this.sequences, correction);
  }

  seconds(batch: MixedBatch): number {
    const { chunks } = batch;
    const { scale } = this.correction.chunk;
    let seconds = batch.size > 0 ? this.stepSeconds(batch) : 0;
    for (let i = 0; i < chunks.count; i++) seconds += this.chunkSeconds(chunks.tokens[i]!, chunks.before[i]!, false);
    return seconds + scale * chunks.ending * this.tables.head.at(1);
  }

  /** A decode step of the batch's sequences, at least one. */
  stepSeconds(batch: MixedBatch): number {
    const { tables, sequences, correction } = this;
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
