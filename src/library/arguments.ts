/** What the library's functions take: a schema an argument. */
import { z } from 'zod';
import { CODEC_KINDS, PATHS, PATH_CHOICES, SHARINGS, type Codec } from '../codecs/codec.js';
import { choiceOf } from '../codecs/paths.js';
import * as registry from '../codecs/registry.js';
import { PREFILL_KINDS } from '../cost/memory.js';
import { gpuCounts, type Geometry } from '../geometry/geometry.js';
import { isPreset } from '../geometry/presets.js';
import { PATH_CLASSES } from '../quality/figure.js';
import { LIMITS } from '../geometry/config.js';
import { KERNELS, KERNEL_NAMES } from '../../kernels/registry.js';
import { STORAGES } from '../../kernels/spec.js';
import { codecSchema } from '../schema/codec.js';
import { MAX_BYTES, MAX_TOKENS } from '../numbers/units.js';
import { asMade, type Rule } from './checked.js';

export const finite = z.number();
export const count = (max: number, min = 1) => z.int().min(min).max(max);
export const text = z.string().max(4096);
export const tokens = count(MAX_TOKENS);
export const bytes = finite.min(0).max(MAX_BYTES);
const bits = finite.min(1).max(32);
export const made = asMade(z.looseObject({}));

const geometry = z
  .object({
    name: text,
    preludeLayers: count(LIMITS.layers, 0),
    layers: count(LIMITS.layers),
    codaLayers: count(LIMITS.layers, 0),
    loops: count(LIMITS.loops),
    loopsAreChosen: z.literal(true).optional(),
    loopsInRow: z.literal(true).optional(),
    stacks: z
      .array(z.object({ layers: count(LIMITS.layers), runs: count(LIMITS.loops) }))
      .min(1)
      .max(16)
      .readonly()
      .optional(),
    laterLoopsWindow: tokens.optional(),
    loopGateOfInput: z.literal(true).optional(),
    changeRank: count(LIMITS.hidden).optional(),
    shiftsLoops: z.object({ embedding: z.number().positive(), state: z.number().positive() }).optional(),
    valuesAreKeys: z.literal(true).optional(),
    copiesKeys: z.literal(true).optional(),
    heads: count(LIMITS.heads),
    kvHeads: count(LIMITS.heads),
    headDim: count(LIMITS.headDim),
    hidden: count(LIMITS.hidden),
    mlpHidden: count(LIMITS.mlp),
    mlp: z.enum(['gated', 'plain']),
    vocab: count(LIMITS.vocab),
    tiedEmbeddings: z.boolean(),
    embeddingRank: count(LIMITS.hidden).optional(),
    normsPerLayer: z.literal([2, 4]),
    plainNorms: z.literal(true).optional(),
    normsOfBranches: z.literal(true).optional(),
    outputNorm: z.enum(['branch', 'sum']).optional(),
    extraParametersPerLayer: finite.min(0).max(1e12),
    attentionGate: z.literal(true).optional(),
    extraParameters: finite.min(0).max(1e12).optional(),
    adapter: z.union([z.boolean(), z.literal('input')]),
    normAfterEachLoop: z.boolean(),
    normAfterCore: z.boolean().optional(),
    exitGate: z.boolean(),
    rope: z.object({ theta: finite.min(1).max(1e15), pairing: z.enum(['half-split', 'adjacent']) }),
    maxPositions: count(LIMITS.positions),
    weightType: z.enum(['bf16', 'f16', 'f32']),
    quantised: z
      .object({
        layerBits: bits,
        tableBits: bits,
        name: text,
        float8: z.literal(true).optional(),
        blocks: z.literal(true).optional(),
        unpacked: z.literal(true).optional(),
      })
      .optional(),
  })
  .refine(
    ({ stacks, layers }) => stacks === undefined || stacks.reduce((sum, s) => sum + s.layers * s.runs, 0) === layers,
    'must have as many layers as its stacks run',
  );
const rank = count(1e7).optional();
/** Settings that have a meaning of their own where they are not given. */
const USUAL: readonly string[] = ['shared', 'constants'];
const HAS_SETTINGS =
  'must have the settings of its kind (ranks, shareLayers, bits, windowTokens, residual, tokens, constants or ' +
  'shared), and no others';
const codec = codecSchema
  .refine((c) => 'rankK' in c === 'rankV' in c, 'must have both ranks or none')
  .refine(({ kind, ...given }) => {
    const has = new Set(Object.entries(given).flatMap(([name, value]) => (value === undefined ? [] : [name])));
    const settings: readonly string[] = registry.CODECS[kind].settings;
    return [...has].every((name) => settings.includes(name)) && settings.every((s) => USUAL.includes(s) || has.has(s));
  }, HAS_SETTINGS);
export const path = z.enum(PATHS);
export const choice = z.object({ storage: z.enum(STORAGES), groupSize: count(4096) });
export const branch = z.object({ width: count(1024, 0), perHead: z.boolean() });
const eviction = z
  .discriminatedUnion('policy', [
    z.object({
      policy: z.literal('streaming'),
      sinkTokens: count(MAX_TOKENS, 0),
      windowTokens: tokens,
      budgetTokens: tokens,
    }),
    z.object({
      policy: z.literal('h2o'),
      heavyTokens: count(MAX_TOKENS, 0),
      recentTokens: tokens,
      budgetTokens: tokens,
    }),
    z.object({ policy: z.literal('budget'), budgetTokens: tokens }),
  ])
  .nullable();
/** Whole tiles of the cache. */
export const pageTokens = count(65536, 32).multipleOf(32);
const gpus = count(1024);
const targetWorkgroups = count(2 ** 20);
const bindingBytes = z.custom<number>((x) => typeof x === 'number' && x >= 2 ** 16, 'must be 65536 bytes or more');
/** Whether so many GPUs may share a model's heads. */
const shares = ({ geometry: g, gpus: n }: { geometry: Parameters<typeof gpuCounts>[0]; gpus: number }): boolean =>
  gpuCounts(g).includes(n);
const SHARES = {
  path: ['gpus'],
  error: 'must be a number of GPUs that divides the heads (gpuCounts in the geometry of the model)',
};
const configuration = z
  .object({
    geometry,
    codec,
    path,
    materialised: z.boolean(),
    choice,
    branch,
    eviction,
    gpus,
    targetWorkgroups,
    bindingBytes,
  })
  .refine(shares, SHARES)
  .refine((c) => exists(c.geometry as Geometry, c.codec as Codec), 'has a codec that the model cannot have')
  .refine(
    (c) => registry.pathChoices(c.codec as Codec).includes(choiceOf(c.path, c.materialised)),
    'has a path that the codec does not have',
  )
  .refine(
    (c) => c.eviction === null || registry.evictionRefusalOf(c.geometry as Geometry, c.codec as Codec) === undefined,
    'has an eviction policy that the codec refuses',
  );
const exists = (g: Geometry, c: Codec): boolean => registry.refusalOf(g, c) === undefined;
export const layout = z
  .array(
    z.object({
      block: z.enum(['prelude', 'core', 'coda']),
      role: text,
      layers: count(LIMITS.layers, 0),
      loops: count(LIMITS.loops, 0),
      heads: count(LIMITS.heads),
      width: count(1e8, 0),
      storage: z.enum(STORAGES),
      groupSize: count(4096),
    }),
  )
  .max(100);
const shape = z.record(text, finite.min(0).max(2 ** 60));
export const call = z
  .object({ kernel: z.enum(KERNEL_NAMES as [string, ...string[]]), variant: text, shape })
  .superRefine(({ kernel, variant, shape: given }, context) => {
    const { variants, dims } = KERNELS[kernel as keyof typeof KERNELS];
    const lacking = dims.filter((d) => given[d] === undefined);
    const wrong = (field: string, message: string): void =>
      context.addIssue({ code: 'custom', path: [field], message });
    if (!variants.includes(variant)) wrong('variant', `must be one of ${variants.join(', ')}`);
    if (lacking.length > 0) wrong('shape', `must have ${lacking.join(', ')}`);
  });
const rate = finite.min(1).max(1e21);
export const rates = z.object({ bytesPerSecond: rate, f32FlopsPerSecond: rate, matrixFlopsPerSecond: rate.nullable() });
export const link = z
  .object({
    bytesPerSecondPerDirection: rate,
    perPeerBytesPerSecond: rate.nullable(),
    mostGpus: count(2 ** 20).nullable(),
    beyondBytesPerSecond: rate.nullable(),
    throughHost: z.boolean().default(false),
  })
  .nullable();
export const device = z.object({
  id: text,
  name: text,
  vramBytes: bytes,
  driverBytes: bytes.nullish(),
  memoryBytesPerSecond: rate,
  f32FlopsPerSecond: rate,
  matrixFlopsPerSecond: rate.nullable(),
  interconnect: link,
});
export const query = z.object({
  model: text.refine(isPreset, 'must be the name of a preset'),
  codec: z.enum(CODEC_KINDS),
  shared: z.enum(SHARINGS).optional(),
  ratio: finite,
  pathClass: z.enum(PATH_CLASSES),
  eviction,
});
const report = asMade(
  z.looseObject({ schema: z.literal('lla-sim/plan'), plans: z.array(made), notes: z.array(z.string()) }),
);
const target = finite.positive().nullable();
/** What a caller may change of a request; the rest is taken as the library made it. */
const requested = z.looseObject({
  geometry,
  device: z.looseObject({ name: text, vramBytes: bytes }),
  contextTokens: tokens,
  candidates: z.array(z.looseObject({ codec, path, materialised: z.boolean(), eviction })),
  choice,
  branch,
  utilization: finite.positive().max(1),
  reserveBytes: bytes,
  pageTokens,
  gpus,
  targetWorkgroups,
  bindingBytes,
  prefill: z.enum(PREFILL_KINDS),
  batch: count(2 ** 24).nullable(),
  targets: z.looseObject({
    minimums: z.array(z.looseObject({ metric: text, value: finite })),
    retrievalTokens: tokens.nullable(),
    secondsPerToken: target,
    secondsToFirstToken: target,
  }),
  confidence: finite.min(0.5).max(0.999),
  keep: finite.min(0).max(1),
  usdPerHour: target,
});
export const filter = z.object({
  kinds: z.array(z.enum(CODEC_KINDS)).max(64).nullable(),
  shared: z.array(z.enum(SHARINGS)).max(8).nullish(),
  ratios: z.array(finite.min(1).max(1e5)).max(64).nullable(),
  ranks: z
    .array(z.object({ rankK: count(1e7), rankV: count(1e7), rankFirst: rank }))
    .max(64)
    .nullable(),
  paths: z.array(z.enum(PATH_CHOICES)).max(64).nullable(),
  evictions: z.array(eviction).max(64),
});
export const aCodec = [
  ['geometry', geometry],
  ['codec', codec],
] as const;
export const aConfiguration: Rule = ['configuration', configuration];
export const aRequest: Rule = ['request', asMade(requested.refine(shares, SHARES))];
export const aGeometry: Rule = ['geometry', geometry];
export const aReport: Rule = ['report', report];
