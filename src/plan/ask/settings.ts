/**
 * Reads a scenario: text and numbers from outside become a checked request in base units. Pure; no files are read here.
 */
import {
  CODEC_KINDS,
  PATH_CHOICES,
  SHARINGS,
  type CodecKind,
  type CodecSpec,
  type PathChoice,
  type Sharing,
  type FlashloopConstants,
} from '../../codecs/codec.js';
import {
  codecSpec,
  hasOwnStorage,
  isUncompressed,
  LATENT_KINDS,
  pathChoices,
  PLANNED_KINDS,
  PLANNED_SHARINGS,
} from '../../codecs/registry.js';
import { constantsRefusal, withConstants } from '../../codecs/flashloop-constants.js';
import type { Ranks } from '../../codecs/ranks.js';
import { requireOneOf, UserError, show } from '../../errors.js';
import { parseEviction, type Eviction } from '../../eviction/policy.js';
import { gpuCounts, type Geometry } from '../../geometry/geometry.js';
import type { PrefillKind } from '../../cost/memory.js';
import { GROUP_SIZE, type Storage } from '../../../kernels/spec.js';
import { flagOf, SETTINGS, type Scenario, type SettingName } from '../../schema/settings.js';
import { METRICS, type Metric } from '../../quality/figure.js';
import { isTable, tablesOf } from '../../quality/quality.js';
import { reserveOf, type ServerMemory } from '../../stacks/server-memory.js';
import { defined } from '../../present.js';
import { parseBytes, parseNumber, parseSeconds, parseTokens } from '../../numbers/units.js';
import type { CandidateFilter } from './candidates.js';
import type { MinimumTarget, PlanRequest } from '../types.js';

/** Driver, context and allocator of a process without a server's own: about half a gigabyte. */
const DEFAULT_RESERVE_BYTES = 512 * 2 ** 20;
/** Workgroups that split-KV attention aims for: about four for each of the 132 units of an H100 or H200. */
export const DEFAULT_TARGET_WORKGROUPS = 512;
const DEFAULT_ROPE_DIM = 64;

const STORAGE: Record<string, Storage> = { f16: 'f16', bf16: 'f16', f32: 'f32', fp8: 'f8', int8: 'q8', int4: 'q4' };

/** The part of a request that the scenario alone decides. */
export type Question = Pick<
  PlanRequest,
  | 'contextTokens'
  | 'cacheType'
  | 'choice'
  | 'branch'
  | 'utilization'
  | 'reserveBytes'
  | 'server'
  | 'pageTokens'
  | 'prefill'
  | 'maxModelLen'
  | 'mostSequences'
  | 'batch'
  | 'gpus'
  | 'targets'
  | 'confidence'
  | 'keep'
  | 'usdPerHour'
  | 'targetWorkgroups'
> & {
  readonly filter: CandidateFilter;
};

/** Codecs that have a setting. */
const kindsWith = (name: CodecSpec['settings'][number]): CodecKind[] =>
  CODEC_KINDS.filter((kind) => codecSpec({ kind }).settings.includes(name));

const flag = (name: SettingName): string => `--${flagOf(name)}`;

/** True where a workload says which requests come: `--ttft` is then theirs, which a simulation judges. */
export const bringsRequests = ({ workload = {} }: Scenario): boolean =>
  Object.keys(workload).some((name) => name !== 'depth');
const text = (value: string | number): string => String(value);

/**
 * Reads everything but the model, the device and the measurements.
 * @param serverOn what the chosen server keeps for itself on so many GPUs; null where there is no server
 * @throws UserError naming the setting, its rule and the value
 */
export function readQuestion(
  s: Scenario,
  g: Geometry,
  serverOn: (gpus: number) => ServerMemory | null = () => null,
): Question {
  const number = <T>(name: SettingName, rule: Parameters<typeof parseNumber>[2], otherwise: T): number | T =>
    s[name] === undefined ? otherwise : parseNumber(s[name] as string | number, flag(name), rule);
  const choices = (name: 'cacheType' | 'ropeBranch' | 'prefill', otherwise: string): string => {
    const value = s[name] ?? otherwise;
    requireOneOf(flag(name), value, SETTINGS[name].choices);
    return value;
  };
  const cacheType = choices('cacheType', 'f16');
  const storage = STORAGE[cacheType] as Storage;
  const gpus = number('gpus', { min: 1, max: 1024, whole: true }, 1);
  checkGpus(g, gpus);
  const server = serverOn(gpus);
  if (storage === 'f8' && server === null)
    throw new UserError(
      "--cache-type fp8 is a server's cache, and no server is chosen: kernels of this project do not store 8-bit " +
        'floats',
      'name a device that vLLM, SGLang or TRT-LLM have kernel times of, or take --cache-type int8',
    );
  const pageTokens = number('pageTokens', { min: 32, max: 65536, whole: true }, server?.pageTokens ?? 32);
  if (s.pageTokens !== undefined && pageTokens % 32 !== 0)
    throw new UserError(
      `--page-tokens must be a multiple of 32 (a tile of the cache), not ${pageTokens}`,
      'use 32, 64, 128 or 256',
    );
  const reserve = server ? Math.ceil(reserveOf(server)) : DEFAULT_RESERVE_BYTES;
  const groupSize = number('groupSize', { min: 32, max: 4096, whole: true }, GROUP_SIZE);
  if (groupSize % 32 !== 0)
    throw new UserError(
      '--group-size must be a multiple of 32 (scalars that fill whole words of the cache at any bit width), not ' +
        `${groupSize}`,
      'use 32, 64 or 128',
    );
  if (s.percentile !== undefined && s.workload === undefined)
    throw new UserError(
      '--percentile is a share of simulated requests, and no workload says which requests come',
      'give the scenario a workload (rate, promptTokens and the like), or ask lla-sim simulate',
    );
  const contextTokens = s.context === undefined ? 4096 : parseTokens(text(s.context), flag('context'));
  const ropeDim = number('ropeDim', { min: 0, max: 1024, whole: true }, DEFAULT_ROPE_DIM);
  checkRopeDim(ropeDim);
  return {
    contextTokens,
    cacheType,
    choice: { storage, groupSize },
    branch: { width: ropeDim, perHead: choices('ropeBranch', 'shared') === 'per-head' },
    utilization: number('utilization', { min: 0.1, max: 1 }, server?.utilization ?? 1),
    reserveBytes: s.reserve === undefined ? reserve : readReserve(text(s.reserve)),
    server: server && (s.reserve === undefined ? server : { ...server, more: null }),
    pageTokens,
    prefill: choices('prefill', 'accumulated') as PrefillKind,
    ...(s.server?.maxNumSeqs === undefined
      ? {}
      : { mostSequences: parseNumber(s.server.maxNumSeqs, '--max-num-seqs', { min: 1, max: 2 ** 16, whole: true }) }),
    ...(s.server?.maxModelLen === undefined
      ? {}
      : { maxModelLen: parseTokens(text(s.server.maxModelLen), '--max-model-len') }),
    batch: number('batch', { min: 1, max: 2 ** 24, whole: true }, null),
    gpus,
    targetWorkgroups: DEFAULT_TARGET_WORKGROUPS,
    targets: {
      minimums: Object.entries(s.min ?? {}).map(readMinimum),
      retrievalTokens: s.retrieval === undefined ? null : parseTokens(text(s.retrieval), flag('retrieval')),
      secondsPerToken: s.tpot === undefined ? null : parseSeconds(text(s.tpot), flag('tpot')),
      secondsToFirstToken:
        s.ttft === undefined || bringsRequests(s) ? null : parseSeconds(text(s.ttft), flag('ttft'), true),
      ...defined({
        maxKl: number('maxKl', { min: 0, max: 1000 }, undefined),
        minRecall: number('minRecall', { min: 0, max: 1 }, undefined),
      }),
    },
    confidence: number('confidence', { min: 0.5, max: 0.999 }, 0.9),
    keep: number('keep', { min: 0, max: 1 }, 0.9),
    usdPerHour: number('usdPerHour', { min: 0.0001, max: 1e6 }, null),
    filter: readFilter(s, g, storage, contextTokens),
  };
}

/** Less than this, but not nothing, is a number without its unit. */
const LEAST_RESERVE_BYTES = 2 ** 20;

function readReserve(amount: string): number {
  const bytes = parseBytes(amount, flag('reserve'), true);
  if (bytes > 0 && bytes < LEAST_RESERVE_BYTES)
    throw new UserError(`${flag('reserve')} ${show(amount)} is ${bytes} bytes`, 'add the unit, such as 512MiB');
  return bytes;
}

function checkRopeDim(width: number): void {
  if (width === 0)
    throw new UserError(
      '--rope-dim must not be 0: the absorbed path cannot tell positions apart without its rotary branch',
      'give an even width such as 64, or leave the absorbed path out with --path',
    );
  if (width % 2 === 1) throw new UserError(`--rope-dim must be even (rotary pairs), not ${width}`, 'use 64');
}

/** Heads must divide over the GPUs; too few KV heads are replicated, which needs a whole number of copies. */
function checkGpus(g: Geometry, gpus: number): void {
  const divisors = gpuCounts(g);
  if (!divisors.includes(gpus)) {
    throw new UserError(
      `--gpus must divide the ${g.heads} query heads and fit the ${g.kvHeads} KV heads of ${g.name}, not ${gpus}`,
      `use ${divisors.join(', ')}; more GPUs are replicas: plan --users, simulate --replicas`,
    );
  }
}

function readMinimum([key, value]: [string, number]): MinimumTarget {
  const [metric = '', table, ...rest] = key.split('@');
  if (rest.length > 0 || table === '')
    throw new UserError(
      `--min must be METRIC=VALUE or METRIC@TABLE=VALUE, not ${show(key)}`,
      'write for example --min gsm8k@isocache=0.75',
    );
  if (!Object.hasOwn(METRICS, metric))
    throw new UserError(
      `--min names an unknown metric ${show(metric)}`,
      `use one of ${Object.keys(METRICS).join(', ')}`,
    );
  if (typeof value !== 'number' || !Number.isFinite(value) || value < 0 || value > 100)
    throw new UserError(
      `--min ${metric} must be a number from 0 to 100, not ${show(value)}`,
      `write for example --min ${metric}=0.75`,
    );
  if (METRICS[metric as Metric].unit === 'fraction' && value > 1)
    throw new UserError(
      `--min ${key} must be a share from 0 to 1, not ${value}`,
      value < 10 ? `write for example --min ${key}=0.75` : `write --min ${key}=${value / 100} for ${value} %`,
    );
  if (table === undefined) return { metric, value };
  const tables = tablesOf(metric as Metric);
  if (!tables.some((t) => isTable(t, table)))
    throw new UserError(
      `--min ${metric} names an unknown table ${show(table)}`,
      tables.length > 0 ? `${metric} is in ${tables.join(', ')}` : `no table has ${metric}`,
    );
  return { metric, value, table };
}

function readFilter(s: Scenario, g: Geometry, storage: Storage, contextTokens: number): CandidateFilter {
  const list = (name: 'codec' | 'ratio' | 'ranks' | 'path' | 'eviction' | 'shared'): string[] | null => {
    const value = s[name];
    if (value === undefined) return null;
    const words = value.map((v) => text(v).trim());
    if (words.length === 0 || words.some((w) => w === ''))
      throw new UserError(
        `${flag(name)} must name at least one value`,
        `write for example ${flag(name)} ${EXAMPLES[name]}`,
      );
    if (words.length > 64)
      throw new UserError(`${flag(name)} takes at most 64 values, not ${words.length}`, 'split the question');
    return words;
  };
  const oneOf = <T extends string>(name: 'codec' | 'path' | 'shared', known: readonly T[]): T[] | null =>
    list(name)?.map((w) => {
      requireOneOf(flag(name), w, known, EXAMPLES[name]);
      return w as T;
    }) ?? null;
  const kinds = oneOf<CodecKind>('codec', CODEC_KINDS);
  const ownBits = storage.startsWith('q') ? kinds?.find((kind) => hasOwnStorage({ kind })) : undefined;
  if (ownBits !== undefined)
    throw new UserError(
      `--cache-type int8 or int4 does not stack on the ${ownBits} codec, which has its own bits`,
      `leave --cache-type or ${ownBits} out`,
    );
  const evictions =
    list('eviction')?.map((w) => parseEviction(w, '--eviction')) ?? (s.budget === undefined ? [null] : []);
  if (s.budget !== undefined)
    evictions.push({ policy: 'budget', budgetTokens: parseTokens(text(s.budget), '--budget') } satisfies Eviction);
  const window = s.window === undefined ? null : text(s.window);
  const windowTokens = window === null ? null : window === '0' ? 0 : parseTokens(window, flag('window'));
  const windowed = kindsWith('windowTokens');
  if (windowTokens !== null && !kinds?.some((kind) => windowed.includes(kind)))
    throw new UserError(
      '--window means nothing without a codec that keeps exact tokens beside its latents',
      `add --codec ${windowed.join(' or ')}, or leave --window out`,
    );
  if (windowTokens !== null && windowTokens > contextTokens)
    throw new UserError(
      `--window keeps ${windowTokens} tokens of a context of ${contextTokens}`,
      'give a smaller --window, or a longer --ctx',
    );
  const constants = readConstants(s, g, kinds, contextTokens);
  const shared = oneOf<Sharing>('shared', SHARINGS);
  const sharing = kindsWith('shared');
  if (shared !== null && kinds !== null && !kinds.some((kind) => sharing.includes(kind)))
    throw new UserError(
      `--shared means nothing for ${kinds.join(', ')}: no loop reads the rows of another`,
      `add --codec ${sharing.join(' or ')}, or leave --shared out`,
    );
  const ratios =
    list('ratio')?.map((w) => parseNumber(w.replace(/x$|×$/, ''), '--ratio', { min: 1, max: 100_000 }, w)) ?? null;
  const paths = oneOf<PathChoice>('path', PATH_CHOICES);
  if (kinds?.every((kind) => isUncompressed({ kind }))) {
    const elsewhere = paths !== null && !kinds.some((kind) => pathChoices({ kind }).some((p) => paths.includes(p)));
    const idle = (ratios && ('ratio' as const)) ?? (elsewhere ? ('path' as const) : null);
    if (idle !== null)
      throw new UserError(
        `${flag(idle)} means nothing for ${kinds.join(', ')}: the cache is not compressed`,
        `name a codec that compresses with --codec, or leave ${flag(idle)} out`,
      );
  }
  const ranks = list('ranks')?.map(readRanks) ?? null;
  if (ranks && ratios)
    throw new UserError('--ranks and --ratio both say how much latents are compressed', 'give one of them');
  if (ranks && kinds && !kinds.some((k) => LATENT_KINDS.includes(k)))
    throw new UserError(
      `--ranks means nothing for ${kinds.join(', ')}`,
      `name one of ${LATENT_KINDS.join(', ')} with --codec, or leave --ranks out`,
    );
  const asked = [s.codec, s.ratio, s.ranks, s.path, s.eviction, s.budget].some((x) => x !== undefined);
  return {
    ...(storage === 'f8' ? { refuses: refusedAsFp8 } : asked ? {} : { beside: PAPER_EVICTION }),
    kinds: storage.startsWith('q') ? (kinds ?? PLANNED_KINDS.filter((kind) => !hasOwnStorage({ kind }))) : kinds,
    ratios,
    ranks,
    paths,
    evictions,
    windowTokens,
    ...(constants ? { constants } : {}),
    shared: shared ?? (kinds === null ? PLANNED_SHARINGS : null),
  };
}

/** Numbers of a codec that has some; undefined where they are the published ones. */
function readConstants(
  s: Scenario,
  g: Geometry,
  kinds: readonly CodecKind[] | null,
  contextTokens: number,
): FlashloopConstants | undefined {
  if (s.constants === undefined) return undefined;
  const having = kindsWith('constants');
  if (!kinds?.some((kind) => having.includes(kind)))
    throw new UserError(
      `${flag('constants')} means nothing without --codec ${having.join(' or ')}`,
      `add it, or leave ${flag('constants')} out`,
    );
  if (s.ratio !== undefined)
    throw new UserError(`${flag('constants')} says what is stored, and ${flag('ratio')} too`, 'leave one of them out');
  const constants = withConstants(s.constants);
  if (typeof constants === 'string')
    throw new UserError(
      `${flag('constants')} ${constants}`,
      `write for example ${flag('constants')} group=32,keys=0.2`,
    );
  const refused = constants && constantsRefusal(g, constants);
  if (refused !== undefined) throw new UserError(`${flag('constants')}: ${refused}`, 'change it, or leave it out');
  if (constants && constants.tail > contextTokens)
    throw new UserError(
      `${flag('constants')} keeps an exact tail of ${constants.tail} tokens of a context of ${contextTokens}`,
      'give a smaller tail, or a longer --ctx',
    );
  return constants;
}

/** The paper's smallest cache, 36 MiB at a million tokens (Table memory): 21.3× with a budget of 1,024 tokens. */
const PAPER_EVICTION = {
  kind: 'lla',
  ratio: 64 / 3,
  eviction: { policy: 'streaming', sinkTokens: 4, windowTokens: 1020, budgetTokens: 1024 },
} as const satisfies CandidateFilter['beside'];

/** Servers store the full cache in 8-bit floats; everything else would need kernels of this project. */
const refusedAsFp8 = (kind: CodecKind, eviction: Eviction | null): string | undefined =>
  kind === 'full' && eviction === null
    ? undefined
    : 'servers store a full cache without eviction in fp8, and kernels of this project do not store 8-bit floats';

const EXAMPLES = {
  codec: 'full,lla',
  ratio: '4,21.33',
  ranks: '96/160',
  path: 'reconstruct,block-absorbed',
  shared: 'decode',
  eviction: 'streaming:4+256',
} as const;

function readRanks(word: string): Ranks {
  const match = /^([0-9]{1,7})\/([0-9]{1,7})(?:\/([0-9]{1,7}))?$/.exec(word);
  if (!match)
    throw new UserError(
      `--ranks must be K/V ranks such as 96/160, or K/V/first such as 512/512/256 of hla, not ${show(word)}`,
      'write two or three whole numbers with slashes',
    );
  const rule = { min: 1, max: 1e7, whole: true };
  return {
    rankK: parseNumber(match[1] as string, '--ranks (K)', rule),
    rankV: parseNumber(match[2] as string, '--ranks (V)', rule),
    ...(match[3] === undefined ? {} : { rankFirst: parseNumber(match[3], '--ranks (first)', rule) }),
  };
}
