/**
 * Latents that carry their rotation (codecs/hla.ts), for one token and core layer, in float64.
 *
 *   c = Σ_t E_tᵀ x_t, of the loops that share it; its keys are rotated once, at the token's position
 *   s_j = rotate(A_tᵀ q)·c_K,j / √d for tokens before the window, rotate(q)·rotate(k_j) / √d from there on
 *   output = B_t Σ_j p_j c_V,j + Σ_j p_j v_j, under one softmax
 */
import { latentOfLoop, ranksOfLoops } from '../../codecs/hla.js';
import type { Codec } from '../../codecs/codec.js';
import { isHybrid } from '../../codecs/registry.js';
import type { Geometry } from '../../geometry/geometry.js';
import { hybridTensor, type HybridPart } from '../tensors.js';
import type { TensorSource } from '../weights.js';
import { accumulate, dot, joined, rotate, softmax, split, type Vector } from './arithmetic.js';
import type { AttendContext, Visible } from './attend.js';
import { vectorOf } from './model.js';
import { kept } from './storage.js';

/** E [loop][hidden][r_k + r_v], A and B [loop][KV heads × head width][rank], of the loops that read these latents. */
interface Maps {
  readonly rankK: number;
  readonly rankV: number;
  readonly encode: Vector;
  readonly key: Vector;
  readonly value: Vector;
}

export type HybridLayer = Readonly<Record<HybridPart, Maps>>;

/** The maps of every core layer; none for other codecs. */
export function loadHybrid(g: Geometry, codec: Codec, source: TensorSource): HybridLayer[] {
  if (!isHybrid(codec)) return [];
  const ranks = ranksOfLoops(codec);
  const mapsOf = (layer: number, part: HybridPart): Maps => ({
    ...ranks[part],
    encode: vectorOf(source, hybridTensor(layer, part, 'encode')),
    key: vectorOf(source, hybridTensor(layer, part, 'key')),
    value: vectorOf(source, hybridTensor(layer, part, 'value')),
  });
  return Array.from({ length: g.layers }, (_, layer) => ({
    first: mapsOf(layer, 'first'),
    shared: mapsOf(layer, 'shared'),
  }));
}

/** The loop's number among those that read the same latents. */
const within = (loop: number): number => (loop === 0 ? 0 : loop - 1);

const rowOf = (matrix: Vector, row: number, width: number): Vector => matrix.subarray(row * width, (row + 1) * width);

/** E_tᵀ x: K and V side by side. @param x attention's input, hidden wide */
export function encodeInput(layer: HybridLayer, loop: number, x: Vector): Vector {
  const { rankK, rankV, encode } = layer[latentOfLoop(loop)];
  const latent = new Float64Array(rankK + rankV);
  x.forEach((value, i) => accumulate(latent, rowOf(encode, within(loop) * x.length + i, latent.length), value));
  return latent;
}

/** A key latent turned to a position: heads of ordinary width side by side. */
export const rotateLatent = (latent: Vector, position: number, { headDim, rope }: Geometry): Vector =>
  joined(split(latent, headDim).map((part) => rotate(part, position, rope)));

export const partsOf = (layer: HybridLayer, loop: number, latent: Vector): { key: Vector; value: Vector } => {
  const { rankK } = layer[latentOfLoop(loop)];
  return { key: latent.slice(0, rankK), value: latent.slice(rankK) };
};

export const rolesOf = (loop: number) =>
  loop === 0
    ? ({ key: 'first-key-latent', value: 'first-value-latent' } as const)
    : ({ key: 'key-latent', value: 'value-latent' } as const);

/** Attention of one query head. @param query not rotated */
export function attendHybrid(
  { geometry: g, cache, site, kvHead, exactFrom = Infinity, kept: rows }: AttendContext,
  layer: HybridLayer,
  query: Vector,
  position: number,
  visible: Visible,
): { output: Vector; weights: number[] } {
  const { headDim: d, kvHeads, rope } = g;
  const { rankK, rankV, key, value } = layer[latentOfLoop(site.loop)];
  const roles = rolesOf(site.loop);
  const firstRow = (within(site.loop) * kvHeads + kvHead) * d;
  const absorbed = new Float64Array(rankK);
  query.forEach((q, i) => accumulate(absorbed, rowOf(key, firstRow + i, rankK), q));
  const latentQuery = rotateLatent(absorbed, position, g);
  const exactQuery = rotate(query, position, rope);
  const as = (row: Vector): Vector => (rows ? kept(row, rows.as) : row);
  const older = visible.cached.filter((at) => at < exactFrom);
  const recent = visible.cached.filter((at) => at >= exactFrom);
  const weights = softmax(
    [
      ...older.map((at) => dot(latentQuery, cache.read(roles.key, site, kvHead, at))),
      ...recent.map((at) => dot(exactQuery, cache.read('key', site, kvHead, at))),
      ...visible.exact.map((token) => dot(exactQuery, as(rotate(token.keys[kvHead] as Vector, token.position, rope)))),
    ].map((score) => score / Math.sqrt(d)),
  );
  const latent = new Float64Array(rankV);
  older.forEach((at, i) => accumulate(latent, cache.read(roles.value, site, kvHead, at), weights[i]));
  const output = Float64Array.from({ length: d }, (_, i) => dot(latent, rowOf(value, firstRow + i, rankV)));
  const exact = [
    ...recent.map((at) => cache.read('value', site, kvHead, at)),
    ...visible.exact.map((token) => as(token.values[kvHead] as Vector)),
  ];
  exact.forEach((row, i) => accumulate(output, row, weights[older.length + i]));
  return { output, weights };
}
