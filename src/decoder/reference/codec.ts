/**
 * Encoding and decoding of the learned codecs (paper, Eq. encode and decode), for one token and core layer. The stacked
 * vector x of a latent runs over its loops, then its KV heads, then the components of a head (`latentGroups`).
 */
import type { Branch, Codec, Path } from '../../codecs/codec.js';
import { pathSpec } from '../../codecs/paths.js';
import { isHybrid } from '../../codecs/registry.js';
import type { Geometry } from '../../geometry/geometry.js';
import {
  branchTensor,
  codecTensor,
  codecTensors,
  latentGroups,
  requireTensors,
  type CodecAxis,
  type LatentGroups,
} from '../tensors.js';
import type { TensorSource } from '../weights.js';
import { accumulate, dot, type Matrix, type Vector } from './arithmetic.js';
import { matrixOf, vectorOf } from './model.js';

/** W_down, W_up and mu of one layer and axis, all groups. */
export interface AxisCodec {
  readonly groups: LatentGroups;
  readonly headDim: number;
  readonly kvHeads: number;
  readonly rank: number;
  /** [group, stacked width, rank]. */
  readonly down: Vector;
  readonly up: Vector;
  /** [group, stacked width]. */
  readonly mean: Vector;
}

export interface LayerCodec {
  readonly key: AxisCodec;
  readonly value: AxisCodec;
  /** Projections of the rotary branch, on the absorbed path. */
  readonly branch?: { readonly query: Matrix; readonly key: Matrix };
}

/**
 * Gathers the codec of every core layer; empty for codecs without parameters, and for rotated latents (hybrid.ts).
 * @throws UserError for a tensor that is missing or of another shape
 */
export function loadCodec(g: Geometry, codec: Codec, path: Path, branch: Branch, source: TensorSource): LayerCodec[] {
  requireTensors(codecTensors(g, codec, path, branch), source.shapes, `the codec of ${g.name}`);
  if (codec.rankK === undefined || codec.rankV === undefined || isHybrid(codec)) return [];
  const groups = latentGroups(g, codec);
  const axisOf = (layer: number, axis: CodecAxis, rank: number): AxisCodec => ({
    groups,
    headDim: g.headDim,
    kvHeads: g.kvHeads,
    rank,
    down: vectorOf(source, codecTensor(layer, axis, 'down')),
    up: vectorOf(source, codecTensor(layer, axis, 'up')),
    mean: vectorOf(source, codecTensor(layer, axis, 'mean')),
  });
  return Array.from({ length: g.layers }, (_, layer) => ({
    key: axisOf(layer, 'key', codec.rankK as number),
    value: axisOf(layer, 'value', codec.rankV as number),
    ...(pathSpec(path).branch
      ? {
          branch: {
            query: matrixOf(source, branchTensor(layer, 'query')),
            key: matrixOf(source, branchTensor(layer, 'key')),
          },
        }
      : {}),
  }));
}

/** The latent that holds the vector of a loop and KV head. */
export const groupOf = ({ groups, kvHeads }: AxisCodec, loop: number, kvHead: number): number =>
  Math.floor(loop / groups.loops) * (kvHeads / groups.heads) + Math.floor(kvHead / groups.heads);

/** Where in the stacked vector that vector begins. */
export const offsetOf = ({ groups, headDim }: AxisCodec, loop: number, kvHead: number): number =>
  ((loop % groups.loops) * groups.heads + (kvHead % groups.heads)) * headDim;

/** Row `i` of a matrix of a group: rank wide. */
const rowOf = (matrix: Vector, axis: AxisCodec, group: number, i: number): Vector => {
  const start = (group * axis.groups.width + i) * axis.rank;
  return matrix.subarray(start, start + axis.rank);
};

/** Eq. encode: c = (x − mu) W_down, of a whole stacked vector. */
export function encode(axis: AxisCodec, group: number, stacked: Vector): Vector {
  const latent = new Float64Array(axis.rank);
  stacked.forEach((x, i) =>
    accumulate(latent, rowOf(axis.down, axis, group, i), x - (axis.mean[group * axis.groups.width + i] as number)),
  );
  return latent;
}

/** The same, one loop and head at a time, as encoding is linear: c += (x_t − mu_t) W_down,t. */
export function encodeShare(axis: AxisCodec, latent: Vector, loop: number, kvHead: number, x: Vector): void {
  const group = groupOf(axis, loop, kvHead);
  const offset = offsetOf(axis, loop, kvHead);
  x.forEach((value, i) =>
    accumulate(
      latent,
      rowOf(axis.down, axis, group, offset + i),
      value - (axis.mean[group * axis.groups.width + offset + i] as number),
    ),
  );
}

/** mu_t: head width. */
export function meanOf(axis: AxisCodec, loop: number, kvHead: number): Vector {
  const start = groupOf(axis, loop, kvHead) * axis.groups.width + offsetOf(axis, loop, kvHead);
  return axis.mean.subarray(start, start + axis.headDim);
}

/** W_up,t c, without the mean. */
export function expand(axis: AxisCodec, loop: number, kvHead: number, latent: Vector): Vector {
  const group = groupOf(axis, loop, kvHead);
  const offset = offsetOf(axis, loop, kvHead);
  return Float64Array.from({ length: axis.headDim }, (_, i) => dot(latent, rowOf(axis.up, axis, group, offset + i)));
}

/** Eq. decode: x̂_t = c W_up,tᵀ + mu_t. */
export function decode(axis: AxisCodec, loop: number, kvHead: number, latent: Vector): Vector {
  const x = expand(axis, loop, kvHead, latent);
  accumulate(x, meanOf(axis, loop, kvHead));
  return x;
}

/** W_up,tᵀ q: the up-projection moved to the query's side, qᵀ(W c) = (Wᵀq)ᵀ c. */
export function absorb(axis: AxisCodec, loop: number, kvHead: number, query: Vector): Vector {
  const group = groupOf(axis, loop, kvHead);
  const offset = offsetOf(axis, loop, kvHead);
  const absorbed = new Float64Array(axis.rank);
  query.forEach((q, i) => accumulate(absorbed, rowOf(axis.up, axis, group, offset + i), q));
  return absorbed;
}
