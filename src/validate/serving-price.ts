/**
 * The price of an iteration of the bundled decoder under its serving loop (decoder/serving/loop.ts): a decode step of
 * all the sequences that it was opened for, then every prompt's chunk by itself. A server's kernels take prompts and
 * sequences together, and weights are read once (serving/price.ts).
 */
import type { IterationPricer, MixedBatch } from '../serving/batch.js';
import { attentionOf, type PriceTables } from '../serving/price.js';

export class ApartPricer implements IterationPricer {
  readonly knots: Float64Array;

  /** @param sequences that the decoder was opened for: rows without a request are computed too */
  constructor(
    private readonly tables: PriceTables,
    private readonly sequences: number,
  ) {
    this.knots = tables.knots;
  }

  seconds(batch: MixedBatch): number {
    const { tables, sequences } = this;
    const { chunks } = batch;
    let seconds = 0;
    if (batch.size > 0)
      seconds +=
        tables.overhead +
        tables.shared.at(sequences) +
        tables.head.at(sequences) +
        tables.own.at(sequences) +
        attentionOf(tables, batch, sequences);
    for (let i = 0; i < chunks.count; i++) {
      const tokens = chunks.tokens[i]!;
      seconds +=
        tables.overhead + tables.passes * tables.shared.at(tokens) + tables.chunk.at(tokens, chunks.before[i]!);
    }
    return seconds + chunks.ending * tables.head.at(1);
  }
}
