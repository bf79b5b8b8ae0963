/** What the GPU decoder is compared on: codecs, paths, evictions and geometries. */
import { type Codec, type FlashloopConstants, type Path, RESIDUAL_FORMS } from '../../src/codecs/codec.js';
import { FLASHLOOP } from '../../src/codecs/flashloop.js';
import { pathSpec } from '../../src/codecs/paths.js';
import {
  hasOwnStorage,
  inEverySharing,
  isLatent,
  sharingOf,
  takesTwoPasses,
  takesWhole,
} from '../../src/codecs/registry.js';
import type { Eviction } from '../../src/eviction/policy.js';
import type { Geometry } from '../../src/geometry/geometry.js';
import type { Case } from './gpu-cases.js';
import { mix } from '../../src/numbers/hash.js';
import { randomOf, SEED } from '../gpu/random.js';
import { everyNth, FULL } from '../gpu/sample.js';
import { BRANCH, GEOMETRIES, learnedCodecs, SINGLE } from './models.js';

export const named = (name: string): Geometry => GEOMETRIES.find((g) => g.name === name)!;
const OURO = named('ouro-like');
const GROUPED = named('grouped pre-norm');
const HUGINN = named('huginn-like');
const ORDINARY = named('ordinary, one loop');
/** Heads of whole groups of channels, and several groups of loops that are stored together. */
const WIDE: Geometry = { ...OURO, name: 'wide heads', headDim: 32, loops: 4 };
const MANY_LOOPS: Geometry = {
  ...HUGINN,
  name: 'many loops',
  headDim: 16,
  loops: 8,
  extraParametersPerLayer: 2 * 2 * 16,
};
const ONE_LOOP: Geometry = { ...GROUPED, name: 'one loop', loops: 1, normAfterEachLoop: false };

/** A bare budget is a ring alone, which the other policies have as well: it is tried on few. */
const BUDGET = { eviction: { policy: 'budget', budgetTokens: 17 } } as const;
export const EVICTIONS: Eviction[] = [
  { policy: 'streaming', sinkTokens: 3, windowTokens: 20, budgetTokens: 23 },
  { policy: 'h2o', heavyTokens: 7, recentTokens: 12, budgetTokens: 19 },
];

export const label = ({ geometry, codec, path, materialised, branch, eviction }: Case): string =>
  [
    geometry.name,
    codec.kind,
    codec.bits ?? '',
    codec.shared ?? '',
    codec.residual ?? '',
    path ?? '',
    materialised ? 'materialised' : '',
    branch?.perHead ? 'branch per head' : '',
    eviction ? eviction.policy : '',
  ]
    .filter((part) => part !== '')
    .join(', ');

export const plain = (codec: Codec, geometries: readonly Geometry[], more: Partial<Case> = {}): Case[] =>
  geometries.map((geometry) => ({ geometry, codec, ...more }));
/** Learned codecs on each of the paths. */
export const learned = (geometry: Geometry, paths: readonly Path[], more: Partial<Case> = {}): Case[] =>
  paths.flatMap((path) => learnedCodecs(geometry, 0.5).map((codec): Case => ({ geometry, codec, path, ...more })));
export const ofLla = (cases: readonly Case[]): Case[] => cases.filter(({ codec }) => codec.kind === 'lla');
const absorbed = (geometry: Geometry, more: Partial<Case> = {}): Case[] =>
  [false, true].flatMap((perHead) => learned(geometry, ['absorbed'], { branch: { ...BRANCH, perHead }, ...more }));

/** Fewer exact tokens than a tile has, so that slots of the ring are empty. */
export const windowed = (geometry: Geometry): Codec => ({
  ...learnedCodecs(geometry, 0.5)[0]!,
  kind: 'lla-window',
  windowTokens: 20,
});

/** Rotated latents, with exact tokens and without. */
export const hybrid = ({ loops, kvHeads, headDim: d }: Geometry, windowTokens: number): Codec => ({
  kind: 'hla',
  rankK: loops > 2 ? 3 * d : d,
  rankV: Math.round(0.7 * (loops - 1) * kvHeads * d),
  rankFirst: d,
  windowTokens,
});

/** Codecs whose loops read one set of rows, in every way. */
export const SHARED_LOOPS: readonly Codec[] = (['final-loop', 'mean-loop'] as const).flatMap((kind) =>
  inEverySharing({ kind }),
);

/** Loops as packed differences, of which later ones read chosen keys: short groups, so that prompts have some. */
const packedLoops = (geometry: Geometry, constants: Partial<FlashloopConstants>): Case => ({
  geometry,
  codec: {
    kind: 'flashloop',
    tokens: 'generated',
    constants: { ...FLASHLOOP, rows: [1, 1, 1, 1], group: 8, tail: 8, keys: 0.3, ...constants },
  },
});
const PACKED: Case[] = [
  packedLoops(WIDE, { group: 16, anchorBits: 8 }),
  packedLoops({ ...MANY_LOOPS, name: 'four loops', loops: 4 }, { anchorBits: 2 }),
  packedLoops({ ...GROUPED, name: 'wide groups', headDim: 16, loops: 4 }, { tail: 0, dense: 3, keys: 0.1 }),
  packedLoops({ ...GROUPED, name: 'wide groups, two loops', headDim: 16 }, {}),
];

export const ALL: Case[] = [
  ...plain({ kind: 'full' }, [OURO, GROUPED, ONE_LOOP]),
  ...([8, 4, 3, 2] as const).flatMap((bits) => plain({ kind: 'kv-quant', bits }, [GROUPED])),
  ...plain({ kind: 'cla', shareLayers: 2 }, [OURO]),
  ...RESIDUAL_FORMS.flatMap((residual) => plain({ kind: 'residual-quant', residual }, [WIDE, MANY_LOOPS])),
  ...PACKED,
  ...SHARED_LOOPS.flatMap((codec) => plain(codec, [OURO, HUGINN])),
  ...[OURO, GROUPED].flatMap((geometry) => learned(geometry, ['fast', 'reconstruct', 'block-absorbed'])),
  ...learned(GROUPED, ['reconstruct'], { materialised: true }),
  ...[OURO, GROUPED, HUGINN].flatMap((geometry): Case[] => [
    { geometry, codec: windowed(geometry), path: 'reconstruct' },
    { geometry, codec: windowed(geometry), path: 'block-absorbed' },
    { geometry, codec: hybrid(geometry, 0), path: 'rotated' },
    { geometry, codec: hybrid(geometry, 20), path: 'rotated' },
  ]),
  ...plain({ kind: 'full' }, [HUGINN, ORDINARY]),
  ...[HUGINN, ORDINARY].flatMap((g) => learned(g, ['reconstruct', 'block-absorbed', 'absorbed', 'fast'])),
  ...plain({ kind: 'kv-quant', bits: 8 }, [HUGINN]),
  ...[OURO, GROUPED].flatMap((geometry) => absorbed(geometry)),
  ...plain({ kind: 'full' }, [OURO], BUDGET),
  ...ofLla(learned(GROUPED, ['reconstruct', 'block-absorbed', 'absorbed'], BUDGET)),
  ...EVICTIONS.flatMap((eviction): Case[] => [
    ...plain({ kind: 'full' }, [OURO, GROUPED], { eviction }),
    ...plain({ kind: 'cla', shareLayers: 2 }, [OURO], { eviction }),
    ...SHARED_LOOPS.flatMap((codec) => plain(codec, [OURO], { eviction })),
    ...plain({ kind: 'kv-quant', bits: 8 }, [GROUPED], { eviction }),
    ...learned(OURO, ['fast'], { eviction }),
    ...learned(GROUPED, ['reconstruct', 'block-absorbed'], { eviction }),
    ...learned(GROUPED, ['reconstruct'], { materialised: true, eviction }),
    ...absorbed(GROUPED, { eviction }),
    ...ofLla(learned(HUGINN, ['reconstruct', 'absorbed'], { eviction })),
  ]),
];

/** Whether no kernel of a case adds up across eight threads of a subgroup: those of blocks do. */
export const onFewThreads = ({ path }: Case): boolean => path === undefined || !pathSpec(path).blocks;

/**
 * The same with a cache in f32: then nothing is rounded to where two neighbours are as near, and f32 arithmetic is all
 * that differs.
 */
export const singles = (of: Case): Case => (!hasOwnStorage(of.codec) ? { ...of, choice: SINGLE } : of);

/** One geometry of every layout: what sequences of a batch could confuse does not depend on the number of loops. */
const BATCHED: Case[] = ALL.filter(
  ({ geometry, codec }) =>
    geometry.name === GROUPED.name ||
    geometry.name === HUGINN.name ||
    codec.kind === 'cla' ||
    codec.residual !== undefined ||
    sharingOf(codec) !== undefined,
);

/** What a test tells apart: the codec where it has one path, the path else, and the eviction. */
const kindOf = ({ codec, path, materialised, eviction }: Case): string =>
  [
    path ?? codec.kind,
    sharingOf(codec) ?? '',
    codec.windowTokens ? 'window' : '',
    materialised ? 'materialised' : '',
    eviction?.policy ?? '',
  ].join(' ');

/**
 * One case of each kind, another by each seed; all of them with LLA_SIM_CONTRACT=full. Shaders of a case take a
 * software adapter seconds to compile.
 */
function sampled(all: Case[], seed: number): Case[] {
  if (FULL) return all;
  const random = randomOf(mix(seed));
  const kinds = new Map<string, Case[]>();
  for (const of of all) kinds.set(kindOf(of), [...(kinds.get(kindOf(of)) ?? []), of]);
  return [...kinds.values()].map((cases) => random.pick(cases));
}

/** A part of the kinds in each run. */
export const CASES = everyNth(sampled(ALL, SEED), 12, 1);
/** Of ragged batches a part, as they run on what the single sequences have checked. */
export const BATCH_CASES = everyNth(sampled(BATCHED, SEED + 1), 11);
/** Prompts that are taken in whole, a part: what they have of their own does not depend on the path of decoding. */
export const PREFILL_CASES = everyNth(sampled(ALL, SEED + 2), 16, 2);
/** The same, taken in chunk by chunk, where a prompt may follow cached tokens. */
export const CHUNKED_CASES = everyNth(
  sampled(
    ALL.filter(({ codec }) => !takesWhole(codec)),
    SEED + 3,
  ),
  18,
  3,
);
/** A case whose prompts are taken in whole. */
export const WHOLE_CASE = ALL.find(({ codec }) => takesWhole(codec))!;
/** Those whose latents can be encoded from captures. */
export const CAPTURED_CASES = everyNth(
  sampled(
    ALL.filter(({ codec }) => isLatent(codec) && takesTwoPasses(codec)),
    SEED + 4,
  ),
  6,
  4,
);
