/** The ground truth: every token attends to the exact keys and values of the tokens before it and of itself. */
import type { Vector } from './arithmetic.js';
import { dot, joined, rotate, softmax, turned, accumulate } from './arithmetic.js';
import type { Model } from './model.js';
import { run, type Attention, type Projection, type Site } from './network.js';

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

/**
 * softmax(q Kᵀ / √d) V over the visible tokens: `attend` of one query head.
 * @param earlier the visible tokens, then the token itself
 */
function attendHead(
  model: Model,
  earlier: readonly Projection[],
  head: number,
  kvHead: number,
  indices: readonly number[],
): { output: Vector; weights: number[] } {
  const { headDim, rope } = model.geometry;
  const self = earlier.at(-1) as Projection;
  const query = rotate(self.queries[head] as Vector, indices.at(-1) as number, rope);
  const weights = softmax(
    earlier.map(
      (token, i) => dot(query, turned(token.keys[kvHead] as Vector, indices[i] as number, rope)) / Math.sqrt(headDim),
    ),
  );
  const output = new Float64Array(headDim);
  earlier.forEach((token, i) => accumulate(output, token.values[kvHead] as Vector, weights[i]));
  return { output, weights };
}

/** Exact causal attention among the tokens of one pass, which begins at position 0. */
export const exactAttention =
  (model: Model, mask?: Mask): Attention =>
  (site, tokens, { window = Infinity } = {}) => {
    const group = model.geometry.heads / model.geometry.kvHeads;
    return tokens.map((token) =>
      joined(
        token.queries.map((_, head) => {
          const kvHead = Math.floor(head / group);
          const all = mask
            ? mask.visible(token.position, site, kvHead)
            : tokens.slice(0, token.position).map((t) => t.position);
          const before = all.filter((p) => p > token.position - window);
          const positions = [...before, token.position];
          const indices = mask?.reindexed ? positions.map((_, i) => i) : positions;
          const { output, weights } = attendHead(
            model,
            positions.map((p) => tokens[p] as Projection),
            head,
            kvHead,
            indices,
          );
          mask?.observe?.(weights, token.position, site, head);
          return output;
        }),
      ),
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
