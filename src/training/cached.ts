/**
 * What a student's cache holds, as jax-js differentiates it by the codec's tensors: rows as they are captured, and the
 * same rows as they are read back through latents.
 */
import { numpy as np } from '@jax-js/jax';
import type { Branch, Codec, Path } from '../codecs/codec.js';
import { pathSpec } from '../codecs/paths.js';
import { branchTensor, codecTensor, latentGroups, type CodecAxis } from '../decoder/tensors.js';
import type { Geometry } from '../geometry/geometry.js';
import type { Arrays } from './jax.js';
import {
  firstPlaces,
  positionsOf,
  rotate,
  rotations,
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

/** What depends on the length of the texts alone, for a student. `before`: 0 for tokens before, −1e9 for the others. */
export function studentPositions({ geometry: g, length }: Setting, { branch }: Swap): Positions {
  const turns = rotations(g, firstPlaces(length), branch.width);
  const before = new Float32Array(length * length);
  for (let i = 0; i < length; i++) before.fill(-1e9, i * length + i, (i + 1) * length);
  return {
    ...positionsOf(g, length),
    before: np.array(before).reshape([length, length]),
    branchCos: turns.cos,
    branchSin: turns.sin,
  };
}

/** Name of what is kept of a (loop, layer). */
export const rowName = (part: CodecAxis | 'input' | 'branch' | 'output', loop: number, layer: number): string =>
  `${part}.${loop}.${layer}`;

/** The first of the loops that share a latent with this one, whose input makes the rotary branch's key. */
export const firstLoop = (g: Geometry, codec: Codec, loop: number): number =>
  loop - (loop % latentGroups(g, codec).loops);

/**
 * Keeps what is cached of a site: keys and values [texts, KV heads, tokens, headDim], and what a key of the rotary
 * branch is made from [texts, 1, tokens, hidden]. The arrays stay usable.
 */
export function capture(
  { geometry: g, length }: Setting,
  { codec, path }: Swap,
  into: Arrays,
  { loop, layer, input, keys, values }: AttentionInputs,
): void {
  into[rowName('key', loop, layer)] = keys.ref;
  into[rowName('value', loop, layer)] = values.ref;
  if (pathSpec(path).branch && loop === firstLoop(g, codec, loop))
    into[rowName('input', loop, layer)] = input.ref.reshape([keys.shape[0] as number, 1, length, g.hidden]);
}

/**
 * Rows as attention reads them, by the names of `capture`: values and keys through latents, keys rotated where the path
 * rotates them, and rotated keys of the rotary branch [texts, heads or 1, tokens, width]. `rows` are used up, `p` and
 * `at` stay usable.
 */
export function readBack(setting: Setting, swap: Swap, p: Parameters, at: Positions, rows: Arrays): Arrays {
  const { geometry: g } = setting;
  const { codec, path } = swap;
  const out: Arrays = {};
  for (let layer = 0; layer < g.layers; layer++) {
    for (const axis of ['key', 'value'] as const) {
      const exact = Array.from({ length: g.loops }, (_, loop) => rows[rowName(axis, loop, layer)] as np.Array);
      restored(setting, codec, p, axis, layer, exact).forEach((row, loop) => {
        out[rowName(axis, loop, layer)] = axis === 'key' && !pathSpec(path).branch ? rotate(row, at) : row;
      });
    }
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
