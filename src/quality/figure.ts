/** One published number of quality, and how the tables of numbers are written down. */
import type { CodecKind, Path, Sharing } from '../codecs/codec.js';
import { sharingOf } from '../codecs/registry.js';
import type { Eviction } from '../eviction/policy.js';

/** Models that the paper measures. Its 2.6B is Ouro-2.6B-Thinking. */
export type QualityModel = 'ouro-1.4b' | 'ouro-2.6b' | 'huginn-3.5b';

/**
 * How attention saw the cache. Post-hoc `absorbed` attention is another computation and inherits nothing from
 * `full-rope`, where keys are restored and rotated in full (`fast`, `reconstruct` and `block-absorbed`, or a cache
 * that holds whole keys such as kv-quant's).
 */
export type PathClass = 'uncompressed' | 'full-rope' | 'absorbed';

/** The path class of running `codec` by `path`. */
export function pathClassOf(codec: CodecKind, path: Path): PathClass {
  if (codec === 'full') return 'uncompressed';
  return path === 'absorbed' ? 'absorbed' : 'full-rope';
}

/** What was measured, with its unit and whether more is better. */
export const METRICS = {
  gsm8k: { unit: 'fraction', higherIsBetter: true },
  humaneval: { unit: 'fraction', higherIsBetter: true },
  'humaneval-plus': { unit: 'fraction', higherIsBetter: true },
  mbpp: { unit: 'fraction', higherIsBetter: true },
  'mbpp-plus': { unit: 'fraction', higherIsBetter: true },
  math500: { unit: 'fraction', higherIsBetter: true },
  /** Share of MATH-500 generations without an extractable answer. */
  'math500-no-answer': { unit: 'fraction', higherIsBetter: false },
  bbh: { unit: 'fraction', higherIsBetter: true },
  'mmlu-pro': { unit: 'fraction', higherIsBetter: true },
  mmlu: { unit: 'fraction', higherIsBetter: true },
  'arc-e': { unit: 'fraction', higherIsBetter: true },
  'arc-c': { unit: 'fraction', higherIsBetter: true },
  hellaswag: { unit: 'fraction', higherIsBetter: true },
  winogrande: { unit: 'fraction', higherIsBetter: true },
  'commonsense-qa': { unit: 'fraction', higherIsBetter: true },
  piqa: { unit: 'fraction', higherIsBetter: true },
  'openbook-qa': { unit: 'fraction', higherIsBetter: true },
  /** Mean over a suite of multiple-choice tasks. */
  'mc-avg': { unit: 'fraction', higherIsBetter: true },
  /** Held-out, teacher-forced KL of a fully trained codec. */
  'train-kl': { unit: 'nats', higherIsBetter: false },
  /** Held-out KL after the 300 steps of the design ablations: not that of a finished codec. */
  'ablation-kl': { unit: 'nats', higherIsBetter: false },
  /** KL of a decode path against the teacher. */
  'reconstruction-kl': { unit: 'nats', higherIsBetter: false },
  /** KL and top-1 agreement of a codec as the SVD gives it, untrained. */
  'svd-kl': { unit: 'nats', higherIsBetter: false },
  'svd-top-1': { unit: 'fraction', higherIsBetter: true },
  'distill-kl': { unit: 'nats', higherIsBetter: false },
  /** Top-1 token agreement with the teacher, the better of SVD and distilled. */
  'top-1': { unit: 'fraction', higherIsBetter: true },
  /** Retrieval of a 5-digit key at `contextTokens`. */
  passkey: { unit: 'fraction', higherIsBetter: true },
  /** Mean of RULER's tasks at `contextTokens`. */
  ruler: { unit: 'fraction', higherIsBetter: true },
  /** Longest context with retrieval of at least 0.9, as a text states it. */
  'reliable-retrieval': { unit: 'tokens', higherIsBetter: true },
  /** Relative error of reconstructed keys and values. */
  'key-error': { unit: 'fraction', higherIsBetter: false },
  'value-error': { unit: 'fraction', higherIsBetter: false },
} as const satisfies Record<string, { unit: 'fraction' | 'nats' | 'tokens'; higherIsBetter: boolean }>;

export type Metric = keyof typeof METRICS;

export interface QualityFigure {
  readonly model: QualityModel;
  readonly codec: CodecKind;
  /** When loops share rows; absent where none reads another's. */
  readonly shared?: Sharing;
  /**
   * Exact ratio where ranks give one (16/3 for "5.33×"). Huginn's is that of the looped core; kv-quant's is nominal.
   */
  readonly ratio: number;
  /** The ratio as printed, without the sign. */
  readonly ratioLabel: string;
  readonly pathClass: PathClass;
  readonly eviction: Eviction | null;
  readonly metric: Metric;
  /** Context at which a `passkey` or `ruler` was measured; null for every other metric. */
  readonly contextTokens: number | null;
  readonly value: number;
  readonly unit: 'fraction' | 'nats' | 'tokens';
  readonly higherIsBetter: boolean;
  /** Items scored as the paper states it (see CONTRADICTIONS); null where it says "the full set" or nothing. */
  readonly items: number | null;
  readonly protocol: string;
  /** Which of several codecs at one ratio: `off-policy`, `on-policy`, an ablation, …; null for the main one. */
  readonly variant: string | null;
  /** Table by its LaTeX label (`Table isocache`), or the passage of the text. */
  readonly source: string;
  readonly isTeacher: boolean;
}

/** Exact ratios by printed label. 14.2× is ranks 27/45 of 2·512; 15.5× has no integer 3:5 split and is as printed. */
const RATIOS: Readonly<Record<string, number>> = {
  '1.33': 4 / 3,
  '2.67': 8 / 3,
  '5.33': 16 / 3,
  '10.67': 32 / 3,
  '14.2': 1024 / 72,
  '21.33': 64 / 3,
};

/** The exact ratio behind a printed one. */
export function exactRatio(label: string): number {
  return RATIOS[label] ?? Number(label);
}

/** What a whole table, or a row of it, has in common. */
export interface Common {
  readonly model: QualityModel;
  readonly source: string;
  readonly protocol: string;
  readonly codec?: CodecKind;
  /** The codec's usual way unless given. */
  readonly shared?: Sharing;
  readonly ratioLabel?: string;
  readonly pathClass?: PathClass;
  readonly eviction?: Eviction;
  readonly items?: number | null;
  readonly variant?: string;
  readonly contextTokens?: number;
}

/** One figure. Without a codec it is the uncompressed teacher's. */
export function figure(common: Common, metric: Metric, value: number): QualityFigure {
  const codec = common.codec ?? 'full';
  const ratioLabel = common.ratioLabel ?? '1';
  const shared = sharingOf({ kind: codec, ...(common.shared ? { shared: common.shared } : {}) });
  return {
    model: common.model,
    codec,
    ...(shared ? { shared } : {}),
    ratio: exactRatio(ratioLabel),
    ratioLabel,
    pathClass: common.pathClass ?? (codec === 'full' ? 'uncompressed' : 'full-rope'),
    eviction: common.eviction ?? null,
    metric,
    contextTokens: common.contextTokens ?? null,
    value,
    ...METRICS[metric],
    items: common.items ?? null,
    protocol: common.protocol,
    variant: common.variant ?? null,
    source: common.source,
    isTeacher: codec === 'full' && common.eviction === undefined,
  };
}

/** A row of a table: one value a metric, null where the table prints "n/a". */
export function row(common: Common, metrics: readonly Metric[], values: readonly (number | null)[]): QualityFigure[] {
  if (metrics.length !== values.length)
    throw new Error(`${common.source}: ${values.length} values for ${metrics.length} metrics`);
  return metrics.flatMap((metric, i) => {
    const value = values[i];
    return value === null || value === undefined ? [] : [figure(common, metric, value)];
  });
}
