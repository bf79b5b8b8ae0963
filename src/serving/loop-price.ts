/** Prices of single passes over the looped layers, from the tables that price whole steps. */
import { isUncompressed } from '../codecs/registry.js';
import type { MixedBatch } from './batch.js';
import type { LoopPricer } from './depth-replica.js';
import { attentionOf, type Bound, type PriceTables } from './price.js';

/** Queries of a KV head that attention takes at once: a tile of FlashAttention's products has so many rows. */
const TILE_ROWS = 64;

/**
 * All passes of a step, and what it has beside them, are the step's price. Of the operations on tokens the looped layers
 * take their share of all layers.
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
