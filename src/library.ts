/**
 * The library's functions behind a check of their arguments: whoever calls from JavaScript gets a UserError that names
 * the argument. The command line calls the functions themselves.
 */
import { z } from 'zod';
import { CODEC_KINDS, PATHS, PATH_CHOICES, SHARINGS, type Codec } from './codecs/codec.js';
import { choiceOf } from './codecs/paths.js';
import * as registry from './codecs/registry.js';
import * as cacheLayout from './codecs/layout.js';
import * as explain from './cost/explain.js';
import * as latency from './cost/latency.js';
import * as memory from './cost/memory.js';
import * as pricers from './cost/pricers.js';
import * as devices from './devices/find.js';
import { UserError, show } from './errors.js';
import * as geometries from './geometry/geometry.js';
import type { Geometry } from './geometry/geometry.js';
import { LIMITS } from './geometry/config.js';
import * as presets from './geometry/presets.js';
import * as paperModel from './paper/model.js';
import * as paper from './paper/report.js';
import { ask } from './plan/ask/on-disk.js';
import { listCandidates as list } from './plan/ask/candidates.js';
import { makePlan as make } from './plan/plan.js';
import { readQuestion as read } from './plan/ask/settings.js';
import type { PlanReport } from './plan/types.js';
import * as quality from './quality/quality.js';
import { planCsv as csv, planMarkdown as markdown } from './report/plan-csv.js';
import { planTable as table } from './report/text/plan-table.js';
import { KERNELS, KERNEL_NAMES, workOf as work } from '../kernels/registry.js';
import { STORAGES } from '../kernels/spec.js';
import { forEachOp as forEveryOp } from './schedule/expand.js';
import * as schedules from './schedule/schedule.js';
import type { Configuration, Op, Schedule } from './schedule/schedule.js';
import { codecSchema } from './schema/codec.js';
import { checkScenario } from './schema/scenario.js';
import type { Calibration } from './schema/calibration.js';
import { readCalibration } from './schema/drift.js';
import type { Scenario } from './schema/settings.js';
import { MAX_BYTES, MAX_TOKENS } from './numbers/units.js';

/** An argument: its name and what it must be. */
type Rule = readonly [name: string, type: z.ZodType];

/**
 * The function, with its arguments checked first. Where all of an argument is checked, what is thrown later is a defect
 * and stays one; where an argument is taken as the library made it (`made`), it becomes one line, with its cause.
 */
function checked<A extends readonly unknown[], R>(call: (...args: A) => R, ...rules: Rule[]): (...args: A) => R {
  const { name } = call;
  const trusts = rules.some(([, type]) => TAKEN_AS_MADE.has(type));
  return (...args) => {
    for (const [i, [argument, type]] of rules.entries()) check(type, args[i], `${name}: ${argument}`);
    return trusts ? asUserError(name, () => numberOr(call(...args))) : call(...args);
  };
}

/** @throws Error for a number that is none */
function numberOr<R>(result: R): R {
  if (typeof result === 'number' && Number.isNaN(result)) throw new Error('the result is not a number');
  return result;
}

/** @throws UserError unless the value is of this type */
function check(type: z.ZodType, value: unknown, subject: string): void {
  const issue = asUserError(subject, () => type.safeParse(value)).error?.issues[0];
  if (!issue) return;
  const where = issue.path.map((key) => `.${String(key).slice(0, 80)}`).join('');
  const received = issue.path.reduce<unknown>((at, key) => (at as Record<PropertyKey, unknown> | null)?.[key], value);
  throw new UserError(
    `${subject}${where} is wrong: ${issue.message}, not ${show(received)}`,
    'see the types of the library',
  );
}

/** Runs what reads an argument that is not checked: an error there is the argument's, such as a getter that throws. */
function asUserError<T>(name: string, call: () => T): T {
  try {
    return call();
  } catch (cause) {
    if (cause instanceof UserError) throw cause;
    const why = cause instanceof Error ? cause.message.slice(0, 200) : show(cause);
    const refused = new UserError(
      `${name}: the arguments do not fit together (${why})`,
      'pass what the library itself returned',
    );
    throw Object.assign(refused, { cause });
  }
}

const finite = z.number();
const count = (max: number, min = 1) => z.int().min(min).max(max);
const text = z.string().max(4096);
const tokens = count(MAX_TOKENS);
const bytes = finite.min(0).max(MAX_BYTES);
const bits = finite.min(1).max(32);
const TAKEN_AS_MADE = new Set<z.ZodType>();
/** An object that only the library makes: no more of it is checked than this. */
const asMade = (type: z.ZodObject): z.ZodObject => {
  TAKEN_AS_MADE.add(type);
  return type;
};
const made = asMade(z.looseObject({}));

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
    quantised: z.object({ layerBits: bits, tableBits: bits, name: text }).optional(),
  })
  .refine(
    ({ stacks, layers }) => stacks === undefined || stacks.reduce((sum, s) => sum + s.layers * s.runs, 0) === layers,
    'must have as many layers as its stacks run',
  );
const rank = count(1e7).optional();
/** Settings that have a meaning of their own where they are not given. */
const USUAL: readonly string[] = ['shared', 'constants'];
const codec = codecSchema
  .refine((c) => 'rankK' in c === 'rankV' in c, 'must have both ranks or none')
  .refine(({ kind, ...given }) => {
    const has = new Set(Object.entries(given).flatMap(([name, value]) => (value === undefined ? [] : [name])));
    const settings: readonly string[] = registry.CODECS[kind].settings;
    return [...has].every((name) => settings.includes(name)) && settings.every((s) => USUAL.includes(s) || has.has(s));
  }, 'must have the settings of its kind (ranks, shareLayers, bits, windowTokens, residual, tokens, constants or shared), and no others');
const path = z.enum(PATHS);
const choice = z.object({ storage: z.enum(STORAGES), groupSize: count(4096) });
const branch = z.object({ width: count(1024, 0), perHead: z.boolean() });
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
const configuration = z
  .object({
    geometry,
    codec,
    path,
    materialised: z.boolean(),
    choice,
    branch,
    eviction,
    gpus: count(1024),
    targetWorkgroups: count(2 ** 20),
    bindingBytes: z.custom<number>((x) => typeof x === 'number' && x >= 2 ** 16, 'must be 65536 bytes or more'),
  })
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
const layout = z
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
const call = z
  .object({ kernel: z.enum(KERNEL_NAMES as [string, ...string[]]), variant: text, shape })
  .refine(
    ({ kernel, variant }) => KERNELS[kernel as keyof typeof KERNELS].variants.includes(variant),
    'has a variant that the kernel does not have',
  )
  .refine(
    ({ kernel, shape: given }) => KERNELS[kernel as keyof typeof KERNELS].dims.every((d) => given[d] !== undefined),
    'lacks fields of the kernel',
  );
const rate = finite.min(1).max(1e21);
const rates = z.object({ bytesPerSecond: rate, f32FlopsPerSecond: rate, matrixFlopsPerSecond: rate.nullable() });
const link = z
  .object({
    bytesPerSecondPerDirection: rate,
    perPeerBytesPerSecond: rate.nullable(),
    mostGpus: count(2 ** 20).nullable(),
    beyondBytesPerSecond: rate.nullable(),
    throughHost: z.boolean().default(false),
  })
  .nullable();
const device = z.object({
  id: text,
  name: text,
  vramBytes: bytes,
  memoryBytesPerSecond: rate,
  f32FlopsPerSecond: rate,
  matrixFlopsPerSecond: rate.nullable(),
  interconnect: link,
});
const query = z.object({
  model: text,
  codec: z.enum(CODEC_KINDS),
  shared: z.enum(SHARINGS).optional(),
  ratio: finite,
  pathClass: text,
  eviction,
});
const report = asMade(
  z.looseObject({ schema: z.literal('lla-sim/plan'), plans: z.array(made), notes: z.array(z.string()) }),
);
const filter = z.object({
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
const aCodec = [
  ['geometry', geometry],
  ['codec', codec],
] as const;
const aConfiguration: Rule = ['configuration', configuration];
const aGeometry: Rule = ['geometry', geometry];
const aReport: Rule = ['report', report];

/**
 * Plans a scenario: what fits, how fast, how good. Fields are those of a scenario file; files that it names are read
 * relative to the working directory.
 * @throws UserError naming the field that is wrong
 */
export async function plan(scenario: Scenario): Promise<PlanReport> {
  return ask(checkScenario(scenario, 'plan: the scenario'));
}

/** Plans every candidate of a request (`plan` makes one from a scenario). */
export const makePlan = checked(make, ['request', made]);
/** Reads a scenario's settings for a model, in base units. */
export const readQuestion: typeof read = checked(
  function readQuestion(scenario: Scenario, ...of: readonly [g: Geometry, serverOn?: Parameters<typeof read>[2]]) {
    return read(checkScenario(scenario, 'readQuestion: the scenario'), ...of);
  },
  ['scenario', z.unknown()],
  aGeometry,
);
/** Every combination of codec, ratio, path and eviction that a filter allows and that can exist. */
export const listCandidates = checked(list, aGeometry, ['filter', filter]);
/** A report as the terminal shows it; the width is in columns. */
export const planTable = checked(table, aReport, ['options', z.object({ all: z.boolean(), colour: z.boolean() })]);
/** A report as CSV, one row a plan. */
export const planCsv = checked(csv, aReport);
/** A report as a Markdown table. */
export const planMarkdown = checked(markdown, aReport);

/** Bytes by kind of a configuration at a context (tokens) and page size (tokens). */
export const memoryModel = checked(
  memory.memoryModel,
  aConfiguration,
  ['context', tokens],
  ['pageTokens', count(65536)],
);
/** The largest batch (sequences) that fits into so many bytes. */
export const maxBatch = checked(memory.maxBatch, ['memory', made], ['usableBytes', bytes]);
/** The largest of 1, 2, 3, 4, 6, 8, 12, … that is at most `batch`. */
export const onGrid = checked(memory.onGrid, ['batch', finite.min(0).max(2 ** 53)]);
/** Working bytes of prefilling one prompt of so many tokens, by kind. */
export const prefillPeaks = checked(
  memory.prefillPeaks,
  aConfiguration,
  ['context', tokens],
  ['chunkTokens', tokens.optional()],
);
/** Bytes that a batch needs on a GPU, without the reserve. */
export const totalBytes = checked(memory.totalBytes, ['memory', made], ['batch', count(2 ** 40, 0)]);

/** Why that step takes its time: laws, data near them, what was left out to find its width. */
export const explainStep = checked(
  explain.explainStep,
  aConfiguration,
  ['pricer', made],
  ['batch', count(2 ** 24)],
  ['context', tokens],
);
/** Seconds of one decode step of `batch` sequences, each with `context` tokens cached. */
export const priceStep = checked(
  latency.priceStep,
  aConfiguration,
  ['pricer', made],
  ['batch', count(2 ** 24)],
  ['context', tokens],
);
/** Seconds of one prompt's prefill. */
export const pricePrompt = checked(
  latency.pricePrompt,
  aConfiguration,
  ['pricer', made],
  ['plan', z.object({ method: z.enum(memory.PREFILL_KINDS), promptTokens: tokens, chunkTokens: tokens.optional() })],
);
/** Prices from a datasheet's rates (bytes and operations a second). */
export const datasheetPricer = checked(pricers.datasheetPricer, ['rates', rates], ['link', link]);
/** Prices of the device that a calibration was measured on. */
export const calibrationPricer = checked(
  function calibrationPricer(
    calibration: pricers.PricedParts,
    options: Parameters<typeof pricers.calibrationPricer>[1],
  ) {
    // A whole file holds what was measured.
    const read = 'clock' in calibration ? readCalibration(calibration as Calibration) : calibration;
    return pricers.calibrationPricer(read, options);
  },
  ['calibration', z.looseObject({ overheads: made, ceilings: made, kernels: z.array(made) })],
  ['options', z.looseObject({ stale: z.set(z.string()), link, source: text })],
);

/** The operations of one decode step of `batch` sequences, each with `context` tokens cached. */
export const schedule = checked(
  schedules.schedule,
  aConfiguration,
  ['batch', count(2 ** 24)],
  ['context', tokens],
  ['slots', tokens.optional()],
);

/** Visits every operation with the number of times that it runs in one step. */
export function forEachOp(c: Configuration, s: Schedule, visit: (op: Op, calls: number) => void): void {
  check(
    z.custom((x) => typeof x === 'function', 'must be a function'),
    visit,
    'forEachOp: visit',
  );
  const found: [Op, number][] = [];
  checked(forEveryOp, aConfiguration, ['schedule', made])(c, s, (op, calls) => {
    found.push([op, calls]);
  });
  // What a visitor throws is its caller's own.
  for (const [op, calls] of found) visit(op, calls);
}

/** Bytes and operations of one call of a kernel. */
export const workOf = checked(work, ['call', call]);

/** The cache that a codec and path keep. */
export const layoutOf = checked(registry.layoutOf, ...aCodec, ['path', path], ['choice', choice], ['branch', branch]);
/** Scalars of the full cache over those of the codec, in the looped core. */
export const coreRatio = checked(registry.coreRatio, ...aCodec);
/** `lla-4x`, `kv-quant-4bit`, `full`. */
export const codecLabel = checked(registry.codecLabel, ...aCodec);
/** Bytes that one cached token takes, group scales included. */
export const bytesPerToken = checked(cacheLayout.bytesPerToken, ['layout', layout]);
/** The rows of a sequence's cache in the order in which they are stored. */
export const slotsOf = checked(cacheLayout.slotsOf, ['layout', layout], ['tokens', tokens]);

/** A model by its name. @throws UserError for a name that is not known, with the nearest one */
export const findPreset = checked(presets.findPreset, ['name', text]);
/** All parameters of a model (scalars). */
export const parameterCount = checked(geometries.parameterCount, aGeometry);
/** (layer, loop) pairs that each hold a cache of their own. */
export const cacheSlots = checked(geometries.cacheSlots, aGeometry);
/** Prelude, core and coda, where they have layers. */
export const blocksOf = checked(geometries.blocksOf, aGeometry);

/** A device of the catalogue by id or name. @throws UserError for one that is not known */
export const findDevice = checked(devices.findDevice, ['name', text]);
/** Devices with so many bytes of memory, within 2 %, the nearest first. */
export const devicesByVram = checked(devices.devicesByVram, ['bytes', bytes]);

/** Published figures of exactly this configuration. */
export const qualityOf = checked(quality.qualityOf, ['query', query]);
/** How far back a key can be found, where it was published. */
export const reliableRetrieval = checked(quality.reliableRetrieval, ['query', query]);

/** A device by its datasheet, for the comparison with the paper. */
export const datasheetDevice = checked(paperModel.datasheetDevice, ['device', device]);
/** The planner as the comparison with the paper asks it, on one device. */
export class PaperModel extends paperModel.PaperModel {
  constructor(device: paperModel.PaperDevice) {
    check(z.looseObject({ choice: made, spec: made, pricer: made }), device, 'PaperModel: device');
    super(device);
  }
}
/** The comparison with the paper. */
export const paperReport = checked(paper.paperReport, [
  'model',
  z.instanceof(paperModel.PaperModel, { error: 'must be a PaperModel' }),
]);
