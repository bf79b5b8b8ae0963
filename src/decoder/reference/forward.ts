/** The ground truth: every token attends to the exact keys and values of the tokens before it and of itself. */
import { type Vector, attention, rotate, turned } from './arithmetic.js';
import type { Model } from './model.js';
import { overHeads, run, type Attention, type Projection, type Site } from './network.js';

/** A restriction of attention, for the equivalence of an evicted cache and a masked full one. */
export interface Mask {
  /**
   * Positions before `position` that a token attends to at a site and KV head, ascending; it always attends to itself.
   */
  visible(position: number, site: Site, kvHead: number): readonly number[];
  /** Keys are rotated by their rank among the visible tokens instead of by their position (StreamingLLM). */
  readonly reindexed: boolean;
  /** Receives the attention weights of a query head over the visible positions and, last, itself. */
  observe?(weights: readonly number[], position: number, site: Site, head: number): void;
}

/** Exact causal attention among the tokens of one pass, which begins at position 0. */
export const exactAttention =
  (model: Model, mask?: Mask): Attention =>
  (site, tokens, { window = Infinity } = {}) => {
    const { rope } = model.geometry;
    return tokens.map((token) =>
      overHeads(model.geometry, token, (query, head, kvHead) => {
        const all = mask
          ? mask.visible(token.position, site, kvHead)
          : tokens.slice(0, token.position).map((t) => t.position);
        const before = all.filter((p) => p > token.position - window);
        const positions = [...before, token.position];
        const indices = mask?.reindexed ? positions.map((_, i) => i) : positions;
        const seen = positions.map((p) => tokens[p] as Projection);
        const { output, weights } = attention(
          rotate(query, indices.at(-1) as number, rope),
          seen.map(({ keys }, i) => turned(keys[kvHead] as Vector, indices[i] as number, rope)),
          seen.map(({ values }) => values[kvHead] as Vector),
        );
        mask?.observe?.(weights, token.position, site, head);
        return output;
      }),
    );
  };

/** Logits of every token of a sequence from an exact, full cache. Every codec approximates these. */
export const forward = (model: Model, tokens: readonly number[], mask?: Mask): Vector[] =>
  run(
    model,
    tokens,
    tokens.map((_, n) => n),
    exactAttention(model, mask),
  );
