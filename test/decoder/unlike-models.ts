/** Models whose loops or layers are unlike Ouro's: random geometries, and the codecs that each of them goes with. */
import { evictionRefusalOf, refusalOf } from '../../src/codecs/registry.js';
import type { Codec } from '../../src/codecs/codec.js';
import { loopGateParameters, type Geometry } from '../../src/geometry/geometry.js';
import { mix } from '../../src/numbers/hash.js';
import { randomOf, SEED } from '../gpu/random.js';
import type { Case } from './gpu-cases.js';
import { EVICTIONS, hybrid, SHARED_LOOPS, windowed } from './gpu-list.js';
import { BRANCH, GEOMETRIES, learnedCodecs } from './models.js';

const random = randomOf(mix(SEED + 77));

/** Sizes of a pre-norm model without anything after its loops. */
function sizes(): Geometry {
  const kvHeads = random.whole(1, 2);
  return {
    ...GEOMETRIES[0]!,
    layers: random.whole(1, 3),
    loops: random.whole(2, 4),
    kvHeads,
    heads: kvHeads * random.whole(1, 3),
    headDim: random.pick([4, 8]),
    hidden: random.even(10, 24),
    mlpHidden: random.whole(9, 40),
    vocab: random.even(17, 40),
    normsPerLayer: 2,
    normAfterEachLoop: false,
    exitGate: false,
    tiedEmbeddings: random.pick([true, false]),
  };
}

/** All loops of a layer before the next layer, and tables of a lower rank (Nandi). */
export const IN_ROW: Geometry = {
  ...sizes(),
  name: 'loops in a row',
  loopsInRow: true,
  embeddingRank: random.even(4, 10),
};

/** Two stacks in turn with a state each, a gate of attention, and norms without weights (HRM-Text). */
function inTurn(): Geometry {
  const stacks = [
    { layers: random.whole(1, 2), runs: random.whole(1, 3) },
    { layers: random.whole(1, 2), runs: random.whole(1, 2) },
  ] as const;
  const g = sizes();
  return {
    ...g,
    name: 'stacks in turn',
    stacks,
    layers: stacks.reduce((sum, stack) => sum + stack.layers * stack.runs, 0),
    plainNorms: true,
    attentionGate: true,
    normAfterEachLoop: true,
    ...(random.pick([true, false]) ? { extraParameters: g.hidden } : {}),
  };
}
export const IN_TURN = inTurn();

/** Later loops that read the first one's rows, and a window of their own (IQuest-Coder-Loop). */
function windows(more: Partial<Geometry> = {}): Geometry {
  const g = { ...sizes(), ...more };
  return {
    ...g,
    name: 'windows in later loops',
    laterLoopsWindow: random.pick([2, 7, 20, 33, 64]),
    extraParametersPerLayer: loopGateParameters(g),
  };
}
export const WINDOWS = windows();

/** The same, whose later loops begin with the embedding and the state of the token before (LoopCoder). */
export const SHIFTED: Geometry = {
  ...windows(),
  name: 'shifted loops',
  shiftsLoops: { embedding: random.pick([1, 0.707]), state: random.pick([1, 0.4]) },
  normAfterEachLoop: true,
};
/** The same with the gates of LoopCoder-V2: of the layer's input. */
export const GATED_INPUT: Geometry = {
  ...windows({ loopGateOfInput: true }),
  name: 'gates of the input',
  shiftsLoops: { embedding: 0.707, state: 0.3 },
  normAfterEachLoop: true,
};

/** Norms of the heads of queries and keys (Qwen3). */
function headNorms(): Geometry {
  const g = sizes();
  const { headDim } = g;
  return { ...g, name: 'norms of heads', heads: 4, kvHeads: 2, extraParametersPerLayer: 2 * headDim };
}
export const HEAD_NORMS = headNorms();

/** Norms of whole rows of queries and keys, and of branches alone (OLMo-2 around Huginn's loops). */
function branchNorms(): Geometry {
  const g = { ...sizes(), heads: 4, kvHeads: 2 };
  const extraParametersPerLayer = (g.heads + g.kvHeads) * g.headDim;
  const around = { preludeLayers: 1, codaLayers: 1, adapter: true } as const;
  return { ...g, ...around, name: 'norms of branches', normsOfBranches: true, extraParametersPerLayer };
}
export const BRANCH_NORMS = branchNorms();

/** A share of what a loop changed, between a prelude and a coda (LoopUS). */
function changes(): Geometry {
  const g = headNorms();
  const changeRank = random.whole(1, 4);
  const extraParameters = (2 * changeRank + 5) * g.hidden + 1;
  const around = { preludeLayers: random.whole(0, 2), codaLayers: 1, tiedEmbeddings: false };
  return { ...g, ...around, name: 'shares of changes', changeRank, extraParameters };
}
export const CHANGES = changes();

/** Values that are keys before their norm and rotation, tables of a lower rank, and norms of queries alone (Lumma). */
function copies(): Geometry {
  const g = sizes();
  const more = { heads: 4, kvHeads: 2, loops: 1, copiesKeys: true, extraParametersPerLayer: g.headDim } as const;
  return { ...g, ...more, name: 'keys as values', embeddingRank: random.even(4, 10) };
}
export const COPIES = copies();

export const UNLIKE: readonly Geometry[] = [
  IN_ROW,
  IN_TURN,
  WINDOWS,
  SHIFTED,
  GATED_INPUT,
  HEAD_NORMS,
  BRANCH_NORMS,
  CHANGES,
  COPIES,
];

/** Everything that a model goes with, a full cache first. */
export function casesOf(geometry: Geometry): Case[] {
  const [lla] = learnedCodecs(geometry, 0.5) as [Codec];
  const codecs: Case[] = [
    { geometry, codec: { kind: 'full' } },
    ...([8, 4, 2] as const).map((bits): Case => ({ geometry, codec: { kind: 'kv-quant', bits } })),
    ...learnedCodecs(geometry, 0.5).flatMap((codec) =>
      (['reconstruct', 'block-absorbed', 'absorbed', 'fast'] as const).map((path): Case => ({
        geometry,
        codec,
        path,
        branch: { ...BRANCH, perHead: random.pick([true, false]) },
      })),
    ),
    { geometry, codec: lla, path: 'reconstruct', materialised: true },
    { geometry, codec: windowed(geometry), path: 'reconstruct' },
    { geometry, codec: hybrid(geometry, 20), path: 'rotated' },
    ...SHARED_LOOPS.map((codec): Case => ({ geometry, codec })),
  ];
  const evicted = codecs
    .filter(({ codec, path }) => codec.kind === 'full' || path === 'reconstruct')
    .flatMap((of) => EVICTIONS.map((eviction): Case => ({ ...of, eviction })));
  return [...codecs, ...evicted].filter(
    ({ codec, eviction }) =>
      refusalOf(geometry, codec) === undefined && (!eviction || evictionRefusalOf(geometry, codec) === undefined),
  );
}
