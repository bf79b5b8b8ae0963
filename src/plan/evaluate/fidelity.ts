/**
 * What `lla-sim fidelity` measured of a model, as a plan uses it instead of published tables. Plain data: a report's
 * page carries it. The bad end of each interval decides: the upper one of KL, the lower one of a score.
 */
import { least } from 'd3-array';
import type { Codec, PathChoice } from '../../codecs/codec.js';
import { choiceOf, pathSpec } from '../../codecs/paths.js';
import { codecSpec, hasOwnStorage, isUncompressed, storageOfCodec } from '../../codecs/registry.js';
import type { Interval } from '../../cost/evidence.js';
import { present } from '../../present.js';
import { evictionLabel } from '../../eviction/policy.js';
import { GROUP_SIZE, type Storage } from '../../../kernels/spec.js';
import { RELIABLE_RETRIEVAL, type ReliableRetrieval } from '../../quality/quality.js';
import { WHOLE } from './quality-kept.js';
import type { Candidate, PlanRequest, QualityKept, Score } from '../types.js';

/** Share of the passkeys that were found at a context. */
export interface Retrieved {
  readonly contextTokens: number;
  /** Depth in the prompt, 0 to 1, and the share found there. */
  readonly depths: readonly { readonly depth: number; readonly count: number; readonly score: number }[];
  readonly score: number;
}

/** What was measured of one configuration. Intervals are 95 % bootstrap intervals over texts. */
export interface MeasuredRow {
  /** Its name in the file. */
  readonly id: string;
  readonly codec: Codec;
  readonly ratio: number;
  readonly path: PathChoice;
  readonly storage: Storage;
  readonly eviction: string | null;
  /** What the codec's weights began with, or how they were trained. */
  readonly initialisation: string;
  readonly codecFingerprint: string | null;
  /** Nats a token, from the uncompressed model. */
  readonly kl: Interval | null;
  readonly top1: Interval | null;
  readonly perplexity: Interval | null;
  /** Tokens that a greedy rollout follows the uncompressed model's. */
  readonly agreedTokens: Interval | null;
  readonly passkey: Interval | null;
  readonly recall: Interval | null;
  readonly sums: Interval | null;
  readonly attentionError: number | null;
  /** As shares of the uncompressed model's, worst first; a share is that of the low end. */
  readonly scores: readonly Score[];
  readonly retrieval: readonly Retrieved[];
  /** Of each greedy rollout, tokens that follow the uncompressed model's. */
  readonly rollouts: readonly number[];
}

export interface Fidelity {
  readonly file: string;
  readonly model: { readonly name: string; readonly fingerprint: string; readonly trained: boolean };
  /** The adapter that decoded. */
  readonly device: string;
  /** Longest sequence that was decoded. */
  readonly contextTokens: number;
  /** Tokens of a rollout. */
  readonly rolloutTokens: number;
  readonly rows: readonly MeasuredRow[];
}

/** The rotary branch that `fidelity` decodes with. */
export const JUDGED_BRANCH = { width: 64, perHead: false } as const;

/** Element types of a cache, as a plan names them, that `fidelity` measures. */
const MEASURED_TYPES: Readonly<Record<string, Storage>> = { f16: 'f16', f32: 'f32', int8: 'q8', int4: 'q4' };
const EXACT_TYPES: readonly string[] = ['f16', 'bf16', 'f32'];

const codecKey = (codec: Codec): string =>
  JSON.stringify([codec.kind, ...codecSpec(codec).settings.map((name) => codec[name])]);

type Asked = Pick<PlanRequest, 'fidelity' | 'cacheType' | 'choice' | 'branch' | 'contextTokens'>;

/**
 * The row of this very configuration; null where the file has none. Of several initialisations the one with the least
 * KL: others are controls.
 */
export function measuredRow(r: Asked, c: Candidate): MeasuredRow | null {
  const type = MEASURED_TYPES[r.cacheType];
  if (!r.fidelity || (type === undefined && !hasOwnStorage(c.codec))) return null;
  const storage = storageOfCodec(c.codec, type ?? 'f16');
  const otherGroups = storage.startsWith('q') && r.choice.groupSize !== GROUP_SIZE;
  const { width, perHead } = JUDGED_BRANCH;
  const otherBranch = pathSpec(c.path).branch && (r.branch.width !== width || r.branch.perHead !== perHead);
  if (otherGroups || otherBranch) return null;
  const key = codecKey(c.codec);
  const path = choiceOf(c.path, c.materialised);
  const eviction = c.eviction && evictionLabel(c.eviction);
  const alike = r.fidelity.rows.filter(
    (row) =>
      codecKey(row.codec) === key &&
      row.path === path &&
      storageOfCodec(row.codec, row.storage) === storage &&
      row.eviction === eviction,
  );
  return least(alike, ({ kl }) => kl?.high ?? Infinity) ?? null;
}

/** True for the cache that the others are measured against, in a type that changes nothing. */
export const isReference = (
  { codec, eviction }: { readonly codec: Pick<Codec, 'kind'>; readonly eviction: Candidate['eviction'] },
  cacheType: string,
): boolean => isUncompressed(codec) && eviction === null && EXACT_TYPES.includes(cacheType);

/** How much of the uncompressed model's scores a configuration keeps; null where it was not measured as far as this. */
export function keptHere(r: Asked, c: Candidate, row: MeasuredRow | null): QualityKept | null {
  // Pass codes, recall and sums.
  if (isReference(c, r.cacheType)) return { ...WHOLE, generationTasks: 3 };
  if (!row || !reaches(r)) return null;
  const [worst] = row.scores;
  return worst
    ? {
        ...worst,
        generationTasks: row.scores.length - 1,
        checkpoint: null,
        scores: row.scores,
        others: [],
        retrievalKnown: row.retrieval.some(({ contextTokens }) => contextTokens >= r.contextTokens),
      }
    : null;
}

/** Sequences as long as a plan's context were decoded. */
export const reaches = ({ fidelity, contextTokens }: Pick<PlanRequest, 'fidelity' | 'contextTokens'>): boolean =>
  contextTokens <= (fidelity?.contextTokens ?? 0);

/** The longest measured context up to which passkeys are found; null where they were not asked. */
export function retrievalHere(row: MeasuredRow | null): ReliableRetrieval | null {
  if (!row || row.retrieval.length === 0) return null;
  const failing = row.retrieval.findIndex(({ score }) => score < RELIABLE_RETRIEVAL);
  const reached = row.retrieval[(failing === -1 ? row.retrieval.length : failing) - 1];
  const limit = row.retrieval[failing];
  return {
    tokens: reached?.contextTokens ?? 0,
    source: HERE,
    note: limit ? `${limit.score.toFixed(2)} at ${limit.contextTokens}, below 0.9` : 'no longer context was measured',
  };
}

/** What a reader of a plan must know of the file. */
export function fidelityNotes(f: Fidelity, contextTokens: number): string[] {
  const storages = Object.entries(MEASURED_TYPES).filter(
    ([type, storage]) => type !== 'f16' && f.rows.some((row) => row.storage === storage && !hasOwnStorage(row.codec)),
  );
  const evictions = [...new Set(f.rows.flatMap(({ eviction }) => eviction ?? []))];
  const more = present([
    storages.length > 0 && `--cache-type ${storages.map(([type]) => type).join(',')}`,
    evictions.length > 0 && `--eviction ${evictions.join(',')}`,
  ]);
  return present([
    `quality is measured here (${f.file}): ${f.rows.length} configurations of ${f.model.name}, decoded on ` +
      `${f.device}, sequences of up to ${f.contextTokens} tokens; of each 95 % interval the bad end decides`,
    !f.model.trained &&
      `the weights of ${f.model.name} are fabricated: what was measured says nothing about a trained model`,
    contextTokens > f.contextTokens &&
      `quality at ${contextTokens} tokens is unknown: ask for --ctx ${f.contextTokens}, or measure longer texts ` +
        `(lla-sim fidelity --window ${contextTokens})`,
    more.length > 0 && `the file also holds ${more.join(' and ')}`,
  ]);
}

/** What marks a figure of this kind. */
export const HERE = 'measured here';

/** `0.018`, `3.3e-6`: two significant digits. */
export function klNumber(value: number): string {
  if (value >= 10) return String(Math.round(value));
  if (value < 1e-4) return value === 0 ? '0' : value.toExponential(1);
  return value.toFixed(1 - Math.floor(Math.log10(value)));
}

/** `0.018 (0.0052–0.036)`. */
export const klLabel = (kl: Interval | null): string =>
  kl === null ? 'unknown' : `${klNumber(kl.estimate)} (${klNumber(kl.low)}–${klNumber(kl.high)})`;

/** `0.92 (0.89–0.95)`. */
export const shareLabel = ({ estimate, low, high }: Interval): string =>
  low === high ? estimate.toFixed(2) : `${estimate.toFixed(2)} (${low.toFixed(2)}–${high.toFixed(2)})`;

/** `measured here: KL 0.012 (0.008–0.017), top-1 0.97 (0.95–0.99), passkey 1.00, recall 0.99 (0.97–1.00)`. */
export function measuredWords(row: MeasuredRow): string {
  const words = present([
    row.kl && `KL ${klLabel(row.kl)}`,
    row.top1 && `top-1 ${shareLabel(row.top1)}`,
    row.passkey && `passkey ${shareLabel(row.passkey)}`,
    row.recall && `recall ${shareLabel(row.recall)}`,
  ]);
  return `${HERE}: ${words.join(', ')}`;
}
