/** Small models of every layout that the decoder knows, and decoders over fabricated weights. */
import { expect } from 'vitest';
import type { Branch, Codec, Path } from '../../src/codecs/codec.js';
import { ReferenceDecoder, type DecoderOptions } from '../../src/decoder/reference/decoder.js';
import { loadModel, type Model } from '../../src/decoder/reference/model.js';
import { codecTensors, modelTensors } from '../../src/decoder/tensors.js';
import { fabricate, type TensorSource } from '../../src/decoder/weights.js';
import type { Geometry } from '../../src/geometry/geometry.js';
import { randomOf } from '../gpu/random.js';

const base: Geometry = {
  name: 'ouro-like',
  preludeLayers: 0,
  layers: 2,
  codaLayers: 0,
  loops: 3,
  heads: 2,
  kvHeads: 2,
  headDim: 4,
  hidden: 12,
  mlpHidden: 20,
  mlp: 'gated',
  vocab: 23,
  tiedEmbeddings: false,
  normsPerLayer: 4,
  extraParametersPerLayer: 0,
  adapter: false,
  normAfterEachLoop: true,
  exitGate: true,
  rope: { theta: 1e4, pairing: 'half-split' },
  maxPositions: 256,
  weightType: 'bf16',
  source: 'made up',
};

/** Ouro, Huginn, grouped queries with pre-norm layers, and an ordinary transformer. */
export const GEOMETRIES: readonly Geometry[] = [
  base,
  {
    ...base,
    name: 'huginn-like',
    preludeLayers: 1,
    codaLayers: 1,
    outputNorm: 'sum',
    adapter: true,
    normAfterEachLoop: false,
    normAfterCore: true,
    exitGate: false,
    tiedEmbeddings: true,
    extraParametersPerLayer: 2 * 2 * 4,
    rope: { theta: 5e4, pairing: 'adjacent' },
  },
  {
    ...base,
    name: 'grouped pre-norm',
    heads: 6,
    kvHeads: 2,
    normsPerLayer: 2,
    exitGate: false,
    loops: 2,
    rope: { theta: 7e7, pairing: 'half-split' },
  },
  {
    ...base,
    name: 'ordinary, one loop',
    loops: 1,
    normsPerLayer: 2,
    normAfterEachLoop: false,
    exitGate: false,
    extraParametersPerLayer: (2 + 2 * 1) * 4,
    kvHeads: 1,
  },
];

export const BRANCH: Branch = { width: 6, perHead: false };
/** How caches are stored. */
export const SINGLE = { storage: 'f32', groupSize: 32 } as const;
export const F16 = { storage: 'f16', groupSize: 32 } as const;

/** Other weights made of given ones. */
export type Change = (weights: TensorSource) => TensorSource;

/** Fabricated weights of a model, or of these tensors. */
export const weightsOf = (g: Geometry, seed: number, specs = modelTensors(g)): TensorSource =>
  fabricate(specs, { seed, tiedEmbeddings: g.tiedEmbeddings, codec: 'random' });

export const modelOf = (g: Geometry, seed: number, change: Change = (weights) => weights): Model =>
  loadModel(g, change(weightsOf(g, seed)));

export interface Setup extends Partial<DecoderOptions> {
  codec: Codec;
  path?: Path;
  seed: number;
  matrices?: 'random' | 'identity';
  /** Of the codec's weights; none unless given. */
  change?: Change;
}

/** The path unless given: of latents those that are reconstructed. */
export const pathOf = ({ codec, path }: Pick<Setup, 'codec' | 'path'>): Path =>
  path ?? (codec.rankK === undefined ? 'full' : 'reconstruct');

export function codecWeights(g: Geometry, setup: Setup): TensorSource {
  const { codec, branch = BRANCH, seed, matrices = 'random', change = (weights) => weights } = setup;
  const { tiedEmbeddings } = g;
  return change(fabricate(codecTensors(g, codec, pathOf(setup), branch), { seed, tiedEmbeddings, codec: matrices }));
}

/** A decoder whose cache keeps float64 unless a storage choice is given. */
export const decoderOf = (model: Model, setup: Setup): ReferenceDecoder =>
  new ReferenceDecoder(model, codecWeights(model.geometry, setup), {
    ...{ eviction: null, choice: SINGLE, branch: BRANCH, materialised: false },
    exactStorage: setup.choice === undefined,
    ...setup,
    path: pathOf(setup),
  });

/**
 * Tokens of a random prompt. The second is unlike the first: alike they have one state, and a codec that chooses tokens
 * by their states may take either.
 */
export function promptOf(g: Geometry, length: number, seed: number): number[] {
  const random = randomOf(seed);
  const tokens = Array.from({ length }, () => random.whole(0, g.vocab - 1));
  if (length > 1 && tokens[1] === tokens[0]) tokens[1] = (tokens[0]! + 1) % g.vocab;
  return tokens;
}

export const decodeAll = (decoder: ReferenceDecoder, tokens: readonly number[]): Float64Array[] =>
  tokens.map((token) => decoder.step(token));

/** Largest difference over the largest magnitude. */
export function distance(a: readonly Float64Array[], b: readonly Float64Array[]): number {
  expect(a.length).toBe(b.length);
  let difference = 0;
  let size = 0;
  a.forEach((row, n) => {
    row.forEach((x, i) => {
      const y = b[n]![i]!;
      difference = Number.isFinite(x) && Number.isFinite(y) ? Math.max(difference, Math.abs(x - y)) : Infinity;
      size = Math.max(size, Math.abs(y));
    });
  });
  return difference / size;
}

/** Learned codecs whose ranks are a share of the width of what they stack. */
export function learnedCodecs(g: Geometry, share: number): Codec[] {
  const rank = (width: number): number => Math.max(1, Math.round(width * share));
  const { loops: T, kvHeads: H, headDim: d } = g;
  return (
    [
      ['lla', T * d],
      ['lla-2d', T * H * d],
      ['mla-head', H * d],
    ] as const
  ).map(([kind, width]) => ({ kind, rankK: rank(width), rankV: rank(share < 1 ? 1.4 * width : width) }));
}
