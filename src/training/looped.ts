/**
 * The looped transformer as jax-js computes it, for training: the same network as decoder/reference/network.ts with
 * Ouro's layers (sandwich norms, SwiGLU, rotary embedding by half-split pairs, the shared norm after every loop), on
 * whole texts at once. Matrices lie as [inputs, outputs] here: jax-js multiplies those fastest.
 *
 * jax-js frees an array once it is used; `.ref` keeps it for one more use.
 */
import { nn, numpy as np } from '@jax-js/jax';
import type { Geometry } from '../geometry/geometry.js';
import { EMBEDDING, FINAL_NORM, HEAD, layerTensor } from '../decoder/tensors.js';
import { free, type Arrays } from './jax.js';

/** Arrays by tensor name. */
export type Parameters = Arrays;

/** What depends on the length of the texts alone. */
export interface Positions {
  /** [tokens, headDim] each. */
  readonly cos: np.Array;
  readonly sin: np.Array;
  /** [tokens, tokens]: 0 where a token sees another, −1e9 elsewhere. */
  readonly mask: np.Array;
  [name: string]: np.Array;
}

/**
 * Tables of rotation of vectors of `width`, [tokens, width] each: cos, and sin with the sign of the pair's half.
 * @param places the tokens' positions
 */
export function rotations(g: Geometry, places: readonly number[], width: number): { cos: np.Array; sin: np.Array } {
  const half = width / 2;
  const { length } = places;
  const [cos, sin] = [new Float32Array(length * width), new Float32Array(length * width)];
  for (const [token, position] of places.entries()) {
    for (let i = 0; i < width; i++) {
      const angle = position * g.rope.theta ** (-(i % half) / half);
      cos[token * width + i] = Math.cos(angle);
      // The pair's other half is in place of this one: minus for the first half.
      sin[token * width + i] = (i < half ? -1 : 1) * Math.sin(angle);
    }
  }
  return { cos: np.array(cos).reshape([length, width]), sin: np.array(sin).reshape([length, width]) };
}

export const firstPlaces = (length: number): number[] => Array.from({ length }, (_, i) => i);

export function positionsOf(g: Geometry, length: number): Positions {
  const mask = new Float32Array(length * length);
  for (let i = 0; i < length; i++) for (let j = i + 1; j < length; j++) mask[i * length + j] = -1e9;
  return { ...rotations(g, firstPlaces(length), g.headDim), mask: np.array(mask).reshape([length, length]) };
}

const rmsNorm = (x: np.Array, weight: np.Array, epsilon: number): np.Array => {
  const meanSquare = np.square(x.ref).mean(-1, { keepdims: true }).add(epsilon);
  return x.div(np.sqrt(meanSquare)).mul(weight);
};

/** x cos + (its halves swapped) sin. `at` stays usable. */
export function rotate(x: np.Array, at: { readonly cos: np.Array; readonly sin: np.Array }): np.Array {
  const [first, second] = np.split(x.ref, 2, -1) as [np.Array, np.Array];
  return x.mul(at.cos.ref).add(np.concatenate([second, first], -1).mul(at.sin.ref));
}

/** What attention gets at a (loop, layer), nothing rotated. The arrays are its to use up. */
export interface AttentionInputs {
  readonly loop: number;
  readonly layer: number;
  /** What queries, keys and values are projected from: [texts · tokens, hidden]. */
  readonly input: np.Array;
  /** [texts, heads, tokens, headDim]; keys and values have the KV heads. */
  readonly queries: np.Array;
  readonly keys: np.Array;
  readonly values: np.Array;
}

/** @returns attention's output: [texts, heads, tokens, headDim] */
export type Attend = (inputs: AttentionInputs) => np.Array;

/** Attention scores of a (loop, layer), masked: [texts, heads, tokens, tokens]. They are its to use up. */
export type Watch = (loop: number, layer: number, scores: np.Array) => void;

/** KV heads repeated for the query heads that share them: [texts, heads, tokens, width]. */
export function sharedHeads(x: np.Array, heads: number): np.Array {
  const [texts, kvHeads, tokens, width] = x.shape as [number, number, number, number];
  if (heads === kvHeads) return x;
  return np
    .broadcastTo(x.reshape([texts, kvHeads, 1, tokens, width]), [texts, kvHeads, heads / kvHeads, tokens, width])
    .reshape([texts, heads, tokens, width]);
}

export const exactAttention =
  (g: Geometry, at: Positions, watch?: Watch): Attend =>
  ({ loop, layer, input, queries, keys, values }) => {
    input.dispose();
    const scores = np
      .matmul(rotate(queries, at), sharedHeads(rotate(keys, at), g.heads).transpose([0, 1, 3, 2]))
      .mul(g.headDim ** -0.5)
      .add(at.mask.ref);
    watch?.(loop, layer, scores.ref);
    return np.matmul(nn.softmax(scores, -1), sharedHeads(values, g.heads));
  };

/**
 * Logits of texts of one length.
 * @param parameters of `parametersFrom`; used up, as `at` and `oneHot` are
 * @param oneHot [texts · tokens, vocabulary]
 * @param see.watch receives the scores of attention; `see.attend` stands in for exact attention
 * @returns [texts · tokens, vocabulary]
 */
export function forward(
  g: Geometry,
  normEpsilon: number,
  parameters: Parameters,
  at: Positions,
  oneHot: np.Array,
  length: number,
  see: { readonly watch?: Watch; readonly attend?: Attend } = {},
): np.Array {
  const { heads, kvHeads, headDim } = g;
  const texts = (oneHot.shape[0] as number) / length;
  const use = (name: string): np.Array => (parameters[name] as np.Array).ref;
  const split = (x: np.Array, n: number): np.Array => x.reshape([texts, length, n, headDim]).transpose([0, 2, 1, 3]);
  const attend = see.attend ?? exactAttention(g, at, see.watch);
  let x = np.matmul(oneHot, use(EMBEDDING));
  for (let loop = 0; loop < g.loops; loop++) {
    for (let layer = 0; layer < g.layers; layer++) {
      const of = (part: string): np.Array => use(layerTensor(layer, `${part}.weight`));
      const input = rmsNorm(x.ref, of('input_layernorm'), normEpsilon);
      const queries = split(np.matmul(input.ref, of('self_attn.q_proj')), heads);
      const keys = split(np.matmul(input.ref, of('self_attn.k_proj')), kvHeads);
      const values = split(np.matmul(input.ref, of('self_attn.v_proj')), kvHeads);
      const mixed = attend({ loop, layer, input, queries, keys, values })
        .transpose([0, 2, 1, 3])
        .reshape([texts * length, heads * headDim]);
      x = x.add(rmsNorm(np.matmul(mixed, of('self_attn.o_proj')), of('input_layernorm_2'), normEpsilon));
      const between = rmsNorm(x.ref, of('post_attention_layernorm'), normEpsilon);
      const gate = np.matmul(between.ref, of('mlp.gate_proj'));
      const up = np.matmul(between, of('mlp.up_proj'));
      const out = np.matmul(nn.silu(gate).mul(up), of('mlp.down_proj'));
      x = x.add(rmsNorm(out, of('post_attention_layernorm_2'), normEpsilon));
    }
    x = rmsNorm(x, use(FINAL_NORM), normEpsilon);
  }
  const logits = np.matmul(x, use(HEAD));
  free(parameters, at);
  return logits;
}

/** Weighted mean of −log p over tokens. `oneHot`, `targets` [rows, vocabulary], `weights` [rows]; all are used up. */
export function crossEntropy(logits: np.Array, targets: np.Array, weights: np.Array): np.Array {
  const total = weights.ref.sum();
  return nn.logSoftmax(logits, -1).mul(targets).sum(-1).mul(weights).sum().div(total).mul(-1);
}
