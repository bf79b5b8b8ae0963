/** Made-up models that are small enough to be opened hundreds of times, and have everything that memory depends on. */
import type { Geometry } from '../../geometry/geometry.js';

/**
 * Ouro's layout with grouped queries: norms after each branch, a norm after each loop, an exit gate, separate
 * embeddings.
 */
export const SMALL_OURO: Geometry = {
  name: 'small ouro',
  preludeLayers: 0,
  layers: 2,
  codaLayers: 0,
  loops: 2,
  heads: 4,
  kvHeads: 2,
  headDim: 16,
  hidden: 64,
  mlpHidden: 96,
  mlp: 'gated',
  vocab: 160,
  tiedEmbeddings: false,
  normsPerLayer: 4,
  extraParametersPerLayer: 0,
  adapter: false,
  normAfterEachLoop: true,
  exitGate: true,
  rope: { theta: 1e4, pairing: 'half-split' },
  maxPositions: 4096,
  weightType: 'f16',
  source: 'made up for lla-sim validate',
};

/** As many loops as flashloop tells apart. */
export const SMALL_FOUR_LOOPS: Geometry = { ...SMALL_OURO, name: 'small ouro, four loops', loops: 4 };

/**
 * Huginn's layout: prelude and coda round the loop, an adapter, norms of sums, tied embeddings, adjacent rotary pairs.
 */
export const SMALL_HUGINN: Geometry = {
  ...SMALL_OURO,
  name: 'small huginn',
  preludeLayers: 1,
  codaLayers: 1,
  kvHeads: 4,
  outputNorm: 'sum',
  adapter: true,
  normAfterEachLoop: false,
  normAfterCore: true,
  exitGate: false,
  tiedEmbeddings: true,
  rope: { theta: 5e4, pairing: 'adjacent' },
};

/** An ordinary transformer: one loop, where a latent is complete within its layer. */
export const SMALL_ORDINARY: Geometry = {
  ...SMALL_OURO,
  name: 'small ordinary',
  loops: 1,
  normsPerLayer: 2,
  normAfterEachLoop: false,
  exitGate: false,
};
