/**
 * What a student's cache holds, as jax-js differentiates it by the codec's tensors: rows as they are captured, and the
 * same rows as they are read back through latents.
 */
import { numpy as np } from '@jax-js/jax';
import type { Branch, Codec, Path } from '../codecs/codec.js';
import { latentOfLoop, ranksOfLoops } from '../codecs/hla.js';
import { pathSpec } from '../codecs/paths.js';
import { isHybrid } from '../codecs/registry.js';
import { branchTensor, codecTensor, hybridTensor, latentGroups, type CodecAxis } from '../decoder/tensors.js';
import type { Geometry } from '../geometry/geometry.js';
import type { Arrays } from './jax.js';
import {
  firstPlaces,
  positionsOf,
  rotate,
  rotations,
  sharedHeads,
  type AttentionInputs,
  type Parameters,
  type Positions,
} from './looped.js';

/** What stands in for the cache. */
export interface Swap {
  readonly codec: Codec;
  readonly path: Path;
  /** Of paths that have one. */
  readonly branch: Branch;
}

/** A model, and how many tokens of a text a pass computes. */
export interface Setting {
  readonly geometry: Geometry;
  readonly normEpsilon: number;
  readonly length: number;
}

/**
 * What depends on the length of the texts alone, for a student. `before`: 0 for tokens before, −1e9 for the others.
 * `recent`: 1 for tokens before that lie in the window of exact rows, 0 for the others.
 */
export function studentPositions({ geometry: g, length }: Setting, { codec, branch }: Swap): Positions {
  const turns = rotations(g, firstPlaces(length), branch.width);
  const [before, recent] = [new Float32Array(length * length), new Float32Array(length * length)];
  for (let i = 0; i < length; i++) {
    before.fill(-1e9, i * length + i, (i + 1) * length);
    recent.fill(1, i * length + Math.max(0, i - (codec.windowTokens ?? 0)), i * length + i);
  }
  return {
    ...positionsOf(g, length),
    before: np.array(before).reshape([length, length]),
    recent: np.array(recent).reshape([length, length]),
    branchCos: turns.cos,
    branchSin: turns.sin,
  };
}

/** Name of what is kept of a (loop, layer). */
export const rowName = (
  part: CodecAxis | `${CodecAxis}-latent` | 'input' | 'branch' | 'output',
  loop: number,
  layer: number,
): string => `${part}.${loop}.${layer}`;

/** The first of the loops that share a latent with this one, whose input makes the rotary branch's key. */
export const firstLoop = (g: Geometry, codec: Codec, loop: number): number =>
  isHybrid(codec) ? Math.min(loop, 1) : loop - (loop % latentGroups(g, codec).loops);

/** Whether keys and values of each loop are cached: what latents are encoded from, or exact rows beside them. */
const capturesRows = (codec: Codec): boolean => !isHybrid(codec) || codec.windowTokens !== 0;

/**
 * Keeps what is cached of a site: keys and values [texts, KV heads, tokens, headDim], and what rotated latents or a key
 * of the rotary branch are made from [texts, 1, tokens, hidden]. The arrays stay usable.
 */
export function capture(
  { geometry: g, length }: Setting,
  { codec, path }: Swap,
  into: Arrays,
  { loop, layer, input, keys, values }: AttentionInputs,
): void {
  if (capturesRows(codec)) {
    into[rowName('key', loop, layer)] = keys.ref;
    into[rowName('value', loop, layer)] = values.ref;
  }
  if (isHybrid(codec) || (pathSpec(path).branch && loop === firstLoop(g, codec, loop)))
    into[rowName('input', loop, layer)] = input.ref.reshape([keys.shape[0] as number, 1, length, g.hidden]);
}

/**
 * Rows as attention reads them, by the names of `capture`: values and keys through latents, keys rotated where the path
 * rotates them, and rotated keys of the rotary branch [texts, heads or 1, tokens, width]; of rotated latents these
 * themselves [texts, 1, tokens, rank] and exact rows. `rows` are used up, `p` and `at` stay usable.
 */
export function readBack(setting: Setting, swap: Swap, p: Parameters, at: Positions, rows: Arrays): Arrays {
  const { geometry: g } = setting;
  const { codec, path } = swap;
  const out: Arrays = {};
  for (let layer = 0; layer < g.layers; layer++) {
    const ofLoops = (part: CodecAxis | 'input'): np.Array[] =>
      Array.from({ length: g.loops }, (_, loop) => rows[rowName(part, loop, layer)] as np.Array);
    for (const axis of capturesRows(codec) ? (['key', 'value'] as const) : []) {
      const exact = ofLoops(axis);
      (isHybrid(codec) ? exact : restored(setting, codec, p, axis, layer, exact)).forEach((row, loop) => {
        out[rowName(axis, loop, layer)] = axis === 'key' && !pathSpec(path).branch ? rotate(row, at) : row;
      });
    }
    if (isHybrid(codec)) Object.assign(out, rotatedLatents(setting, codec, p, at, layer, ofLoops('input')));
    if (!pathSpec(path).branch) continue;
    for (let loop = 0; loop < g.loops; loop = loop + latentGroups(g, codec).loops) {
      const input = rows[rowName('input', loop, layer)] as np.Array;
      const keys = branchVectors(setting, swap, p, layer, 'key', input.reshape([-1, g.hidden]));
      out[rowName('branch', loop, layer)] = rotate(keys, branchTurns(at));
    }
  }
  return out;
}

/** Rows of every loop through latents, [texts, KV heads, tokens, headDim] each. `rows` are used up. */
function restored(
  { geometry: g, length }: Setting,
  codec: Codec,
  p: Parameters,
  axis: CodecAxis,
  layer: number,
  rows: np.Array[],
): np.Array[] {
  const { count, width, loops, heads } = latentGroups(g, codec);
  const texts = (rows[0] as np.Array).shape[0] as number;
  const use = (part: 'down' | 'up' | 'mean'): np.Array => (p[codecTensor(layer, axis, part)] as np.Array).ref;
  const mean = use('mean').reshape([count, 1, width]);
  const stack = np
    .stack(rows)
    .reshape([g.loops / loops, loops, texts, g.kvHeads / heads, heads, length, g.headDim])
    .transpose([0, 3, 2, 5, 1, 4, 6])
    .reshape([count, texts * length, width]);
  const latents = np.matmul(stack.sub(mean.ref), use('down'));
  const back = np
    .matmul(latents, use('up').transpose([0, 2, 1]))
    .add(mean)
    .reshape([g.loops / loops, g.kvHeads / heads, texts, length, loops, heads, g.headDim])
    .transpose([0, 4, 2, 1, 5, 3, 6])
    .reshape([g.loops, texts, g.kvHeads, length, g.headDim]);
  return np.split(back, g.loops, 0).map((x) => x.reshape([texts, g.kvHeads, length, g.headDim]));
}

/** Vectors of several heads' width side by side, each turned: [texts, slots, tokens, width]. `at` stays usable. */
function rotateHeads(x: np.Array, at: Positions, headDim: number): np.Array {
  const [texts, slots, tokens, width] = x.shape as [number, number, number, number];
  const heads = x.reshape([texts, slots, tokens, width / headDim, headDim]).transpose([0, 1, 3, 2, 4]);
  return rotate(heads, at).transpose([0, 1, 3, 2, 4]).reshape([texts, slots, tokens, width]);
}

/** Latents by the first loop that reads them: c = Σ_t E_tᵀ x_t, keys rotated. @param inputs of all loops; used up */
function rotatedLatents(
  { geometry: g, length }: Setting,
  codec: Codec,
  p: Parameters,
  at: Positions,
  layer: number,
  inputs: readonly np.Array[],
): Arrays {
  const out: Arrays = {};
  for (const [first, loops] of [inputs.slice(0, 1), inputs.slice(1)].entries()) {
    const part = latentOfLoop(first);
    const encode = (p[hybridTensor(layer, part, 'encode')] as np.Array).ref;
    const [, hidden, rank] = encode.shape as [number, number, number];
    const stacked = np.concatenate([...loops], -1).reshape([-1, loops.length * hidden]);
    const latents = np.matmul(stacked, encode.reshape([loops.length * hidden, rank])).reshape([-1, 1, length, rank]);
    const [key, value] = np.split(latents, [ranksOfLoops(codec)[part].rankK], -1) as [np.Array, np.Array];
    out[rowName('key-latent', first, layer)] = rotateHeads(key, at, g.headDim);
    out[rowName('value-latent', first, layer)] = value;
  }
  return out;
}

/** How a step reads tokens before it at a site. The arguments are used up. */
export interface Reads {
  /** @param queries [texts, heads, tokens, headDim], not rotated @returns [texts, heads, tokens, cached tokens] */
  readonly scores: (queries: np.Array) => np.Array;
  /** @param weights of these @returns [texts, heads, tokens, headDim] */
  readonly outputs: (weights: np.Array) => np.Array;
}

/** Reads of rows; of rotated latents (A and B lie around them), beside exact rows where there is a window. */
export function readsOf(
  { geometry: g }: Setting,
  { codec, path }: Swap,
  p: Parameters,
  at: Positions,
  cached: Arrays,
  loop: number,
  layer: number,
): Reads {
  const first = firstLoop(g, codec, loop);
  const cachedOf = (part: CodecAxis | `${CodecAxis}-latent`, from: number): np.Array =>
    sharedHeads((cached[rowName(part, from, layer)] as np.Array).ref, g.heads);
  const rows: Reads = {
    scores: (queries) =>
      np.matmul(pathSpec(path).branch ? queries : rotate(queries, at), cachedOf('key', loop).transpose([0, 1, 3, 2])),
    outputs: (weights) => np.matmul(weights, cachedOf('value', loop)),
  };
  if (!isHybrid(codec)) return rows;
  const mapOf = (axis: CodecAxis): np.Array => {
    const map = (p[hybridTensor(layer, latentOfLoop(loop), axis)] as np.Array).ref.slice(loop - first);
    return sharedHeads(map.reshape([1, g.kvHeads, g.headDim, -1]), g.heads);
  };
  const latents: Reads = {
    scores: (queries) => {
      const brought = rotateHeads(np.matmul(queries, mapOf('key')), at, g.headDim);
      return np.matmul(brought, cachedOf('key-latent', first).transpose([0, 1, 3, 2]));
    },
    outputs: (weights) =>
      np.matmul(np.matmul(weights, cachedOf('value-latent', first)), mapOf('value').transpose([0, 1, 3, 2])),
  };
  if (!capturesRows(codec)) return latents;
  const recent = (x: np.Array): np.Array => x.mul((at['recent'] as np.Array).ref);
  const older = (x: np.Array): np.Array => x.mul(np.array(1).sub((at['recent'] as np.Array).ref));
  return {
    scores: (queries) => recent(rows.scores(queries.ref)).add(older(latents.scores(queries))),
    outputs: (weights) => rows.outputs(recent(weights.ref)).add(latents.outputs(older(weights))),
  };
}

/** Tables by which vectors of the rotary branch turn. */
export const branchTurns = (at: Positions): { readonly cos: np.Array; readonly sin: np.Array } => ({
  cos: at['branchCos'] as np.Array,
  sin: at['branchSin'] as np.Array,
});

/**
 * Vectors of the rotary branch, not rotated: [texts, heads or 1, tokens, width].
 * @param input [texts · tokens, hidden]; used up
 */
export function branchVectors(
  { length }: Setting,
  { branch }: Swap,
  p: Parameters,
  layer: number,
  part: 'query' | 'key',
  input: np.Array,
): np.Array {
  const matrix = (p[branchTensor(layer, part)] as np.Array).ref;
  const slots = (matrix.shape[0] as number) / branch.width;
  const texts = (input.shape[0] as number) / length;
  return np.matmul(input, matrix.transpose()).reshape([texts, length, slots, branch.width]).transpose([0, 2, 1, 3]);
}
