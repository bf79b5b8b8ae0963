/**
 * Memory: bytes of every buffer that the decoder allocates, by kind, against the memory model. Equal to the byte or
 * wrong.
 */
import { CODEC_KINDS, type CodecSpec } from '../../codecs/codec.js';
import type { StorageChoice } from '../../codecs/layout.js';
import { FLASHLOOP } from '../../codecs/flashloop.js';
import { pathSpec } from '../../codecs/paths.js';
import { CODECS, hasOwnStorage, isLatent, takesPositions } from '../../codecs/registry.js';
import { memoryModel, prefillPeaks, type MemoryModel } from '../../cost/memory.js';
import type { AllocationKind } from '../../decoder/gpu/allocations.js';
import type { GpuDecoder } from '../../decoder/gpu/decoder.js';
import { mix } from '../../numbers/hash.js';
import { sum } from '../../numbers/statistics.js';
import { parseEviction, POLICY_NAMES } from '../../eviction/policy.js';
import type { Geometry } from '../../geometry/geometry.js';
import type { Device } from '../../gpu/index.js';
import { candidateId, listCandidates } from '../../plan/ask/candidates.js';
import type { Candidate } from '../../plan/types.js';
import { inTime, lateApart } from '../../bench/in-time.js';
import { withDecoder, type CheckRules, type DecoderCase, type NotRun } from '../decoding.js';
import { SMALL_FOUR_LOOPS, SMALL_HUGINN, SMALL_ORDINARY, SMALL_OURO } from './geometries.js';

/** Kinds that the model counts; `control` is part of its reserve. */
export const COUNTED_KINDS = [
  'weights',
  'codec',
  'cache',
  'in-flight',
  'eviction',
  'workspace',
] as const satisfies readonly AllocationKind[];
export type CountedKind = (typeof COUNTED_KINDS)[number];

/** Memory of a prefill while it runs: accumulated, or, where a codec has latents, by captures of each kind. */
export type PrefillBytes = 'prefill' | 'prefill one-shot' | 'prefill by-layer';

/** A kind's bytes in one configuration. */
export interface KindBytes {
  readonly kind: CountedKind | PrefillBytes;
  readonly allocatedBytes: number;
  readonly predictedBytes: number;
}

/** One configuration at one batch. */
export interface MemoryRow {
  readonly id: string;
  readonly model: string;
  readonly batch: number;
  readonly contextTokens: number;
  readonly kinds: readonly KindBytes[];
  /** Tables and placeholders that the model leaves to its reserve. */
  readonly controlBytes: number;
}

export interface MemoryReport {
  readonly rows: readonly MemoryRow[];
  /** Rows with a kind whose bytes differ. */
  readonly mismatches: readonly MemoryRow[];
  /** Configurations that the decoder does not execute (yet), and why: they were not checked. */
  readonly notRun: readonly (NotRun & { readonly model: string })[];
  /** Configurations that there was no time for. */
  readonly notReached: number;
}

/** Not a whole number of tiles or pages, so that rounding shows; beyond the budgets of the policies below. */
const CONTEXT_TOKENS = 201;
const PAGE_TOKENS = 64;
/** The longest prompt, in several chunks; the other sequences of a batch have one token. */
const PROMPT_TOKENS = 77;
/** The same for kinds that capture: two chunks. */
const CAPTURED_PROMPT_TOKENS = 45;
/** The same where each token is a run. */
const POSITIONS_PROMPT_TOKENS = 9;
const PROMPT_CHUNK_TOKENS = 32;
const EVICTIONS = ['none', ...POLICY_NAMES.map((name) => `${name}:40+24`)];
const BRANCH = { width: 6, perHead: false };
/** Packed within a few steps; prompts run all tokens in all loops, and loops after the second read chosen keys. */
const PACKED: Candidate = {
  codec: {
    kind: 'flashloop',
    tokens: 'generated',
    constants: { ...FLASHLOOP, rows: [1, 1, 1, 1], group: 8, tail: 0, keys: 0.3 },
  },
  path: 'full',
  materialised: false,
  eviction: null,
};

/** Bytes of each kind in the memory model. */
export function predictedBytes(m: MemoryModel, batch: number): Record<CountedKind, number> {
  return {
    weights: m.weightsBytes,
    codec: m.codecBytes,
    cache: batch * m.kvBytesPerSequence,
    'in-flight': batch * m.inFlightBytesPerSequence,
    eviction: batch * m.evictionBytesPerSequence,
    workspace: m.workspaceFixedBytes + batch * m.workspaceBytesPerSequence,
  };
}

/** Bytes of each kind that a decoder has allocated. */
export function allocatedBytes(decoder: Pick<GpuDecoder, 'allocations'>): Record<AllocationKind, number> {
  const own = (wanted: AllocationKind): number =>
    sum(decoder.allocations.filter(({ kind }) => kind === wanted).map(({ bytes }) => bytes));
  const all = [...COUNTED_KINDS, 'prefill', 'control'] as const;
  return Object.fromEntries(all.map((kind) => [kind, own(kind)])) as Record<AllocationKind, number>;
}

/** Both of them, kind by kind. */
export function compareBytes(
  decoder: Pick<GpuDecoder, 'allocations'>,
  m: MemoryModel,
  batch: number,
): { readonly kinds: KindBytes[]; readonly controlBytes: number } {
  const [allocated, predicted] = [allocatedBytes(decoder), predictedBytes(m, batch)];
  return {
    kinds: COUNTED_KINDS.map((kind) => ({ kind, allocatedBytes: allocated[kind], predictedBytes: predicted[kind] })),
    controlBytes: allocated.control,
  };
}

/** Kinds whose bytes differ. */
export const differing = ({ kinds }: Pick<MemoryRow, 'kinds'>): KindBytes[] =>
  kinds.filter((k) => k.allocatedBytes !== k.predictedBytes);

/**
 * Every codec, path and eviction that the planner offers for a model; even and odd ranks, every width of quantised
 * scalars.
 */
export function memoryCandidates(g: Geometry): Candidate[] {
  const evictions = EVICTIONS.map((text) => parseEviction(text, 'eviction'));
  const list = (
    kinds: Parameters<typeof listCandidates>[1]['kinds'],
    more: { ratios?: number[]; ranks?: { rankK: number; rankV: number }[] },
  ): Candidate[] =>
    listCandidates(g, { kinds, ratios: more.ratios ?? null, ranks: more.ranks ?? null, paths: null, evictions })
      .candidates;
  return [
    ...CODEC_KINDS.flatMap((kind) => {
      const spec: CodecSpec = CODECS[kind];
      if (spec.undecodable !== undefined) return [];
      // Small models have a ratio of 2 where any ratio can be; with one loop, not that of what loops share.
      const all = spec.latentFor || spec.settings.includes('shareLayers') ? [2] : [...spec.publishedRatios(g)];
      const ratios = all.filter((ratio) => typeof spec.fromRatio(g, ratio) !== 'string');
      const found = ratios.length > 0 ? list([kind], { ratios }) : [];
      return found.filter(({ codec }) => spec.referenceOnly?.(codec) === undefined);
    }),
    ...list(['lla'], { ranks: [{ rankK: 5, rankV: 7 }] }),
  ];
}

/** `quick` leaves out the second and third model, and keeps every codec, path and eviction. */
export function memoryCases(quick: boolean): DecoderCase[] {
  const models = quick ? [SMALL_OURO] : [SMALL_OURO, SMALL_HUGINN, SMALL_ORDINARY];
  const candidates = [
    ...models.flatMap((geometry) => memoryCandidates(geometry).map((candidate) => ({ geometry, candidate }))),
    { geometry: SMALL_FOUR_LOOPS, candidate: PACKED },
  ];
  return candidates.flatMap(({ geometry, candidate }): DecoderCase[] => {
    const of = (batch: number, cacheType: 'f16' | 'int4' = 'f16', perHead = false): DecoderCase => {
      const choice: StorageChoice = { storage: cacheType === 'int4' ? 'q4' : cacheType, groupSize: 32 };
      const branch = { ...BRANCH, perHead };
      return {
        id: `${candidateId(geometry, candidate, cacheType)}${perHead ? ' (branch per head)' : ''}`,
        c: { geometry, ...candidate, choice, branch, gpus: 1, targetWorkgroups: 8, bindingBytes: Infinity },
        batch,
        contextTokens: CONTEXT_TOKENS,
      };
    };
    if (quick) return [of(3)];
    return [
      ...[of(1), of(3)],
      ...(hasOwnStorage(candidate.codec) || candidate.eviction ? [] : [of(2, 'int4')]),
      ...(pathSpec(candidate.path).branch ? [of(2, 'f16', true)] : []),
    ];
  });
}

export interface MemoryRules extends CheckRules {
  readonly cases: readonly DecoderCase[];
}

/**
 * Memory of prompts beside the decoder while they are prefilled, by each kind; nothing where another path has the same
 * prompts under eviction.
 */
async function prefillBytes(decoder: GpuDecoder, { c, batch }: DecoderCase, seed: number): Promise<KindBytes[]> {
  // Their prefill is that of the path that rebuilds inside attention.
  if (c.eviction !== null && (c.materialised || pathSpec(c.path).blocks)) return [];
  const prompt = (tokens: number): number[] =>
    Array.from({ length: tokens }, (_, i) => mix(seed + i) % c.geometry.vocab);
  const rows: KindBytes[] = [];
  const whole = takesPositions(c.codec) ? POSITIONS_PROMPT_TOKENS : PROMPT_TOKENS;
  // Without latents all kinds are the same.
  const captured = isLatent(c.codec) ? (['one-shot', 'by-layer'] as const) : [];
  for (const kind of ['accumulated' as const, ...captured]) {
    const longest = kind === 'accumulated' ? whole : CAPTURED_PROMPT_TOKENS;
    await decoder.prefill(
      Array.from({ length: batch }, (_, sequence) => prompt(sequence === 0 ? longest : 1)),
      kind,
    );
    decoder.reset();
    rows.push({
      kind: kind === 'accumulated' ? 'prefill' : `prefill ${kind}`,
      allocatedBytes: allocatedBytes({ allocations: decoder.prefillAllocations }).prefill,
      predictedBytes: prefillPeaks(c, longest, PROMPT_CHUNK_TOKENS)[kind],
    });
  }
  return rows;
}

/**
 * Opens a decoder for every case, prefills prompts, and compares.
 * @throws GpuError for any failure but an operation without a kernel
 */
export async function checkMemory(device: Device, rules: MemoryRules): Promise<MemoryReport> {
  const rowOf = (of: DecoderCase): Promise<MemoryRow> => {
    const { id, c, batch, contextTokens } = of;
    const options = { batch, contextTokens, pageTokens: PAGE_TOKENS, prefillChunkTokens: PROMPT_CHUNK_TOKENS };
    return withDecoder(device, c, rules.seed, options, async (decoder) => {
      const prefill = await prefillBytes(decoder, of, rules.seed);
      const { kinds, controlBytes } = compareBytes(decoder, memoryModel(c, contextTokens, PAGE_TOKENS), batch);
      return { id, model: c.geometry.name, batch, contextTokens, kinds: [...kinds, ...prefill], controlBytes };
    });
  };
  const { results, ...without } = await eachConfiguration('memory', rules, rowOf);
  const rows = results.map(({ result }) => result);
  return { rows, mismatches: rows.filter((row) => differing(row).length > 0), ...without };
}

/** Cases in an order drawn from the seed, with what has no result. */
export async function eachConfiguration<R>(
  kind: string,
  { cases, onCase, ...rules }: MemoryRules,
  work: (of: DecoderCase) => Promise<R>,
): Promise<
  { results: { readonly one: DecoderCase; readonly result: R }[] } & Pick<MemoryReport, 'notRun' | 'notReached'>
> {
  const { results, notRun } = await inTime(
    cases,
    { ...rules, kinds: [kind], piece: kind, onCase: ({ id }, done, total) => onCase?.(done, total, id) },
    work,
  );
  const { refused, notReached } = lateApart(notRun);
  return {
    results,
    notRun: refused.map(({ one: { id, c }, reason }) => ({ id, model: c.geometry.name, reason })),
    notReached,
  };
}
