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

/** Arrays by tensor name. */
export type Parameters = Record<string, np.Array>;

/** What depends on the length of the texts alone. */
export interface Positions {
  /** [tokens, headDim] each. */
  readonly cos: np.Array;
  readonly sin: np.Array;
  /** [tokens, tokens]: 0 where a token sees another, −1e9 elsewhere. */
  readonly mask: np.Array;
  [name: string]: np.Array;
}

export function positionsOf(g: Geometry, length: number): Positions {
  const { headDim } = g;
  const half = headDim / 2;
  const [cos, sin] = [new Float32Array(length * headDim), new Float32Array(length * headDim)];
  for (let position = 0; position < length; position++) {
    for (let i = 0; i < headDim; i++) {
      const angle = position * g.rope.theta ** (-(i % half) / half);
      cos[position * headDim + i] = Math.cos(angle);
      // The pair's other half is in place of this one: minus for the first half.
      sin[position * headDim + i] = (i < half ? -1 : 1) * Math.sin(angle);
    }
  }
  const mask = new Float32Array(length * length);
  for (let i = 0; i < length; i++) for (let j = i + 1; j < length; j++) mask[i * length + j] = -1e9;
  return {
    cos: np.array(cos).reshape([length, headDim]),
    sin: np.array(sin).reshape([length, headDim]),
    mask: np.array(mask).reshape([length, length]),
  };
}

const rmsNorm = (x: np.Array, weight: np.Array, epsilon: number): np.Array => {
  const meanSquare = np.square(x.ref).mean(-1, { keepdims: true }).add(epsilon);
  return x.div(np.sqrt(meanSquare)).mul(weight);
};

/** x cos + (its halves swapped) sin. */
function rotate(x: np.Array, at: Positions): np.Array {
  const [first, second] = np.split(x.ref, 2, -1) as [np.Array, np.Array];
  return x.mul(at.cos.ref).add(np.concatenate([second, first], -1).mul(at.sin.ref));
}

/** Keys and values of a (loop, layer) before rotation: [texts, KV heads, tokens, headDim]. */
export interface Captured {
  readonly loop: number;
  readonly layer: number;
  readonly keys: np.Array;
  readonly values: np.Array;
}

/** Attention scores of a (loop, layer), masked: [texts, heads, tokens, tokens]. They are its to use up. */
export type Watch = (loop: number, layer: number, scores: np.Array) => void;

/**
 * Logits of texts of one length.
 * @param parameters of `initialParameters`; used up, as `at` and `oneHot` are
 * @param oneHot [texts · tokens, vocabulary]
 * @param see.captured receives what attention caches; `see.watch` the scores of attention
 * @returns [texts · tokens, vocabulary]
 */
export function forward(
  g: Geometry,
  normEpsilon: number,
  parameters: Parameters,
  at: Positions,
  oneHot: np.Array,
  length: number,
  see: { readonly captured?: Captured[]; readonly watch?: Watch } = {},
): np.Array {
  const { heads, kvHeads, headDim } = g;
  const texts = (oneHot.shape[0] as number) / length;
  const use = (name: string): np.Array => (parameters[name] as np.Array).ref;
  const split = (x: np.Array, n: number): np.Array => x.reshape([texts, length, n, headDim]).transpose([0, 2, 1, 3]);
  /** KV heads repeated for the query heads that share them. */
  const shared = (x: np.Array): np.Array =>
    heads === kvHeads
      ? x
      : np
          .broadcastTo(x.reshape([texts, kvHeads, 1, length, headDim]), [
            texts,
            kvHeads,
            heads / kvHeads,
            length,
            headDim,
          ])
          .reshape([texts, heads, length, headDim]);
  let x = np.matmul(oneHot, use(EMBEDDING));
  for (let loop = 0; loop < g.loops; loop++) {
    for (let layer = 0; layer < g.layers; layer++) {
      const of = (part: string): np.Array => use(layerTensor(layer, `${part}.weight`));
      const input = rmsNorm(x.ref, of('input_layernorm'), normEpsilon);
      const queries = split(np.matmul(input.ref, of('self_attn.q_proj')), heads);
      const keys = split(np.matmul(input.ref, of('self_attn.k_proj')), kvHeads);
      const values = split(np.matmul(input, of('self_attn.v_proj')), kvHeads);
      see.captured?.push({ loop, layer, keys: keys.ref, values: values.ref });
      const scores = np
        .matmul(rotate(queries, at), shared(rotate(keys, at)).transpose([0, 1, 3, 2]))
        .mul(headDim ** -0.5)
        .add(at.mask.ref);
      see.watch?.(loop, layer, scores.ref);
      const mixed = np
        .matmul(nn.softmax(scores, -1), shared(values))
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
  for (const array of [...Object.values(parameters), ...Object.values(at)]) array.dispose();
  return logits;
}

/** Weighted mean of −log p over tokens. `oneHot`, `targets` [rows, vocabulary], `weights` [rows]; all are used up. */
export function crossEntropy(logits: np.Array, targets: np.Array, weights: np.Array): np.Array {
  const total = weights.ref.sum();
  return nn.logSoftmax(logits, -1).mul(targets).sum(-1).mul(weights).sum().div(total).mul(-1);
}
