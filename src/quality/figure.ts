/** One published number of quality, and how the tables of numbers are written down. */
import type { CodecKind, Path, Sharing } from '../codecs/codec.js';
import { exactRatio } from '../codecs/ranks.js';
import { sharingOf } from '../codecs/registry.js';
import type { Eviction } from '../eviction/policy.js';

/** Models that the paper measures. Its 2.6B is Ouro-2.6B-Thinking. */
export type QualityModel = 'ouro-1.4b' | 'ouro-2.6b' | 'huginn-3.5b';

export const PATH_CLASSES = ['uncompressed', 'full-rope', 'absorbed'] as const;
/**
 * How attention reads the cache in the scored run. Post-hoc `absorbed` attention is another computation and inherits
 * nothing from
 * `full-rope`, where keys are restored and rotated in full (`fast`, `reconstruct` and `block-absorbed`, or a cache
 * that holds whole keys such as kv-quant's).
 */
export type PathClass = (typeof PATH_CLASSES)[number];

/** The path class of running `codec` by `path`. */
export function pathClassOf(codec: CodecKind, path: Path): PathClass {
  if (codec === 'full') return 'uncompressed';
  return path === 'absorbed' ? 'absorbed' : 'full-rope';
}

/** `times`: a multiple of another codec's. */
type Unit = 'fraction' | 'nats' | 'tokens' | 'times';

const SCORE = { unit: 'fraction', higherIsBetter: true } as const;
const ERROR = { unit: 'fraction', higherIsBetter: false } as const;
const DIVERGENCE = { unit: 'nats', higherIsBetter: false } as const;

/** What was measured, with its unit and whether more is better. */
export const METRICS = {
  gsm8k: SCORE,
  humaneval: SCORE,
  'humaneval-plus': SCORE,
  mbpp: SCORE,
  'mbpp-plus': SCORE,
  math500: SCORE,
  /** Share of MATH-500 generations without an extractable answer. */
  'math500-no-answer': ERROR,
  aime24: SCORE,
  bbh: SCORE,
  'mmlu-pro': SCORE,
  mmlu: SCORE,
  'arc-e': SCORE,
  'arc-c': SCORE,
  hellaswag: SCORE,
  winogrande: SCORE,
  'commonsense-qa': SCORE,
  piqa: SCORE,
  'openbook-qa': SCORE,
  /** Mean over a suite of multiple-choice tasks. */
  'mc-avg': SCORE,
  /** Mean over tasks that a summary does not list. */
  'task-avg': SCORE,
  /** Held-out, teacher-forced KL of a fully trained codec. */
  'train-kl': DIVERGENCE,
  /** Held-out KL after the 300 steps of the design ablations: not that of a finished codec. */
  'ablation-kl': DIVERGENCE,
  /** KL of a decode path against the teacher. */
  'reconstruction-kl': DIVERGENCE,
  /** KL and top-1 agreement of a codec as the SVD gives it, untrained. */
  'svd-kl': DIVERGENCE,
  'svd-top-1': SCORE,
  'distill-kl': DIVERGENCE,
  /** Top-1 token agreement with the teacher, the better of SVD and distilled. */
  'top-1': SCORE,
  /** Retrieval of a 5-digit key at `contextTokens`. */
  passkey: SCORE,
  /** Mean of RULER's tasks at `contextTokens`. */
  ruler: SCORE,
  /** Longest context with retrieval of at least 0.9, as a text states it. */
  'reliable-retrieval': { unit: 'tokens', higherIsBetter: true },
  /** Relative error of reconstructed keys and values. */
  'key-error': ERROR,
  'value-error': ERROR,
  /** Error of an untrained (SVD) reconstruction as a multiple of LLA's at the same budget. */
  'error-over-lla': { unit: 'times', higherIsBetter: false },
} as const satisfies Record<string, { unit: Unit; higherIsBetter: boolean }>;

export type Metric = keyof typeof METRICS;

/**
 * How generated answers were decoded (text, Section expdetails), each with its passes a token. Log-likelihood scores,
 * KL and errors are of teacher-forced text: the paper calls them decoder-independent, and they have none.
 */
export const PASSES_OF_DECODERS = {
  /** The uncompressed model's own. */
  plain: 1,
  /**
   * "Cached reconstruction", "faithful re-forward": pass 1 takes the exact K and V of all loops, pass 2 forwards again
   * with their reconstruction, which is cached at full width after RoPE. That every token takes both passes is HLA's
   * reading (arXiv 2610.07940, appendix H).
   */
  'two-pass': 2,
  /** "An earlier streaming reconstruction decoder", which is not described. */
  streaming: null,
  /** "Capacity", "latent-store": caches latents, reconstructs on read; the prompt takes two passes. */
  'latent-store': 1,
} as const;

export type Decoder = keyof typeof PASSES_OF_DECODERS;

/** A published score of a configuration, with its source. */
export interface QualityFigure {
  readonly model: QualityModel;
  readonly codec: CodecKind;
  /** When loops share rows; absent where none reads another's. */
  readonly shared?: Sharing;
  /** Exact tokens beside latents, of a codec that keeps some. */
  readonly windowTokens?: number;
  /**
   * Exact ratio where ranks give one (16/3 for "5.33×"). Huginn's is that of the looped core; kv-quant's is nominal.
   */
  readonly ratio: number;
  /** The ratio as printed, without the sign. */
  readonly ratioLabel: string;
  /** True where the paper says it of this ratio and of larger ones. */
  readonly andAbove: boolean;
  readonly pathClass: PathClass;
  readonly eviction: Eviction | null;
  readonly metric: Metric;
  /** Context at which a `passkey` or `ruler` was measured; null for every other metric. */
  readonly contextTokens: number | null;
  readonly value: number;
  readonly unit: Unit;
  readonly higherIsBetter: boolean;
  /** Items scored as the paper states it (see CONTRADICTIONS); null where it says "the full set" or nothing. */
  readonly items: number | null;
  readonly protocol: string;
  /** How answers were generated; null where nothing is generated. See CONTRADICTIONS for where the paper disagrees. */
  readonly decoder: Decoder | null;
  /** Which of several codecs at one ratio: `off-policy`, `on-policy`, an ablation, …; null for the main one. */
  readonly variant: string | null;
  /** Table by its LaTeX label (`Table isocache`), or the passage of the text. */
  readonly source: string;
  readonly isTeacher: boolean;
}

/**
 * What a whole table, or a row of it, has in common. Without a codec it is the uncompressed teacher's, without a way of
 * sharing rows the codec's usual one.
 */
export interface Common
  extends
    Pick<QualityFigure, 'model' | 'source' | 'protocol' | 'decoder' | 'shared' | 'windowTokens'>,
    Partial<Pick<QualityFigure, 'codec' | 'ratioLabel' | 'andAbove' | 'pathClass' | 'items'>> {
  readonly eviction?: Eviction;
  readonly variant?: string;
  readonly contextTokens?: number;
}

/** One figure. The uncompressed model generates with its own decoder, whatever its table's codecs did. */
export function figure(common: Common, metric: Metric, value: number): QualityFigure {
  const codec = common.codec ?? 'full';
  const ratioLabel = common.ratioLabel ?? '1';
  const shared = sharingOf({ kind: codec, ...(common.shared ? { shared: common.shared } : {}) });
  return {
    model: common.model,
    codec,
    ...(shared ? { shared } : {}),
    ...(common.windowTokens === undefined ? {} : { windowTokens: common.windowTokens }),
    ratio: exactRatio(Number(ratioLabel)),
    ratioLabel,
    andAbove: common.andAbove ?? false,
    pathClass: common.pathClass ?? (codec === 'full' ? 'uncompressed' : 'full-rope'),
    eviction: common.eviction ?? null,
    metric,
    contextTokens: common.contextTokens ?? null,
    value,
    ...METRICS[metric],
    items: common.items ?? null,
    protocol: common.protocol,
    decoder: codec === 'full' && common.decoder !== null ? 'plain' : common.decoder,
    variant: common.variant ?? null,
    source: common.source,
    isTeacher: codec === 'full' && common.eviction === undefined,
  };
}

/** From this many times the error of LLA at the same budget a codec counts as one that loses quality. */
const LOST_TIMES = 10;

/** True for evidence that quality is lost which no score gives: an error of another order than LLA's at that budget. */
export const showsLoss = ({ unit, value }: QualityFigure): boolean => unit === 'times' && value >= LOST_TIMES;
