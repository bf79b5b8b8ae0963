/** How K and V are represented in the cache: a spec a kind, in files beside this one; registry.ts lists them. */
import type { Geometry, LayerBlock } from '../geometry/geometry.js';
import type { Storage } from '../../kernels/spec.js';
import type { CacheTensor, StorageChoice } from './layout.js';

/** Forms of residual-quant as published: bits of its anchor, channels of a residual's scale (residual-quant.ts). */
export const RESIDUAL_FORMS = ['mixed-g32', 'int2-g32', 'mixed-g16'] as const;
export type ResidualForm = (typeof RESIDUAL_FORMS)[number];

/** Which tokens a context of flashloop is counted as: those of a prompt, or generated ones, of which more is stored. */
export const FLASHLOOP_TOKENS = ['prompt', 'generated'] as const;
export type FlashloopTokens = (typeof FLASHLOOP_TOKENS)[number];

/** Numbers of flashloop (flashloop.ts has the published ones). */
export interface FlashloopConstants {
  /** Bits of a code of the first loop, the anchor: 2, 4 or 8. Differences have 4. */
  readonly anchorBits: number;
  /** Tokens of a channel of keys, and channels of a token of values, that share a scale and a lowest value. */
  readonly group: number;
  /** Last tokens that stay exact, at least. */
  readonly tail: number;
  /**
   * First loops, which run all of a prompt's tokens and read all keys. The last one says which keys later loops read.
   */
  readonly dense: number;
  /** Of each loop, the share of a prompt's tokens that run it: 1 in dense loops, never rising. */
  readonly rows: readonly number[];
  /** Share of the keys that loops after the dense ones read. */
  readonly keys: number;
}

export const CODEC_KINDS = [
  'full',
  'lla',
  'lla-2d',
  'mla-head',
  'cla',
  'kv-quant',
  'residual-quant',
  'final-loop',
  'mean-loop',
  'lla-window',
  'hla',
  'loop-window',
  'melt',
  'flashloop',
] as const;
/** A codec of `CODECS`. */
export type CodecKind = (typeof CODEC_KINDS)[number];

export const PATHS = ['full', 'fast', 'reconstruct', 'absorbed', 'block-absorbed', 'rotated'] as const;
/** How attention reads the cache. */
export type Path = (typeof PATHS)[number];

/** Paths as a user names them (paths.ts): `materialised` is the reconstruct path that writes K and V out. */
export const PATH_CHOICES = [
  'full',
  'fast',
  'reconstruct',
  'materialised',
  'absorbed',
  'block-absorbed',
  'rotated',
] as const;
export type PathChoice = (typeof PATH_CHOICES)[number];

/**
 * When the loops read one set of rows (final-loop, mean-loop).
 * - `two-pass`: in decoding, and in a second pass over each prompt, which reads the rows of an exact first one. The
 *   control of the paper (Looped Latent Attention, "Decoding and caching"), as its latent-store decoder would run it.
 * - `decode`: in decoding alone. A prompt is one exact pass (Ouro, arXiv 2510.25741, section 5.4.2 and Table 14).
 * - `all`: in prompts as in decoding. A token reads the rows of the tokens before it once these have passed all loops,
 *   so a prompt is taken position by position (`shared` of vllm-rlt).
 */
export const SHARINGS = ['two-pass', 'decode', 'all'] as const;
export type Sharing = (typeof SHARINGS)[number];

/** A codec with its settings. Which of them apply depends on the kind. */
export interface Codec {
  readonly kind: CodecKind;
  /** Latent widths of K and V (lla, lla-2d, mla-head; hla's of the loops after the first). */
  readonly rankK?: number;
  readonly rankV?: number;
  /** Latent width of the first loop's K, and of its V (hla). */
  readonly rankFirst?: number;
  /** Adjacent layers that share one cache (cla). */
  readonly shareLayers?: number;
  /** Last tokens whose exact K and V are kept beside the latents (lla-window, hla), or in later loops (loop-window). */
  readonly windowTokens?: number;
  /** Bits a scalar (kv-quant). */
  readonly bits?: 2 | 3 | 4 | 8;
  /** Bits and groups (residual-quant). */
  readonly residual?: ResidualForm;
  /** Which tokens a context is counted as (flashloop). */
  readonly tokens?: FlashloopTokens;
  /** Its numbers, where they are not the published ones (flashloop). */
  readonly constants?: FlashloopConstants;
  /** When the loops share rows (final-loop, mean-loop); the first of the kind's `sharings` unless given. */
  readonly shared?: Sharing;
}

/** The rotary branch of the absorbed path: `width` scalars a token, one row for all heads or one a KV head. */
export interface Branch {
  readonly width: number;
  readonly perHead: boolean;
}

/** Loops as packed differences to the loop before, of which later ones run on a share of a prompt (flashloop). */
export interface Streams {
  /** Of each loop, the share of a prompt's tokens that run it. */
  readonly runs: readonly number[];
  /** Of each loop, the share of the cached tokens that have a row of it. */
  readonly stored: readonly number[];
  /** Bytes of a loop's row over those of one in 4 bits. */
  readonly weights: readonly number[];
  /** First loops that read all keys. */
  readonly dense: number;
  /** Share of the keys that loops after them read. */
  readonly keys: number;
  /** Scalars that share a scale and a lowest value; tokens that are packed together. */
  readonly group: number;
  /** Bits of a code of the first loop. */
  readonly anchorBits: number;
  /** Last tokens whose rows of all loops are exact: at least, and at most between two packings. */
  readonly tail: { readonly least: number; readonly most: number };
}

/** When the last attention of a step reads a layer's cache: then the new token's rows are appended. */
export type Closing = 'always' | 'last-loop' | 'anchor-loop' | 'closing-layer';

/** Everything that the rest of the program must know of a kind of codec. */
export interface CodecSpec {
  readonly title: string;
  readonly paths: readonly Path[];
  /** The settings that a codec of this kind has; no others. */
  readonly settings: readonly Exclude<keyof Codec, 'kind'>[];
  /** The plain cache, with which the others are compared. */
  readonly uncompressed?: true;
  /** Nothing is trained for it: it has no checkpoints to choose from. */
  readonly untrained?: true;
  /** It stores the rows that there are, one by one: models whose loops keep unlike rows have it, too. */
  readonly rowByRow?: true;
  /** Which KV heads one latent serves; without latents not given. */
  readonly latentFor?: 'one-head' | 'all-heads';
  readonly closes: Closing;
  /**
   * Latents are encoded from attention's input and their keys rotated; the first loop has its own, the others share one
   * (hla). Prompts attend to exact rows, whole.
   */
  readonly hybrid?: true;
  /** When loops share rows: the choices of `shared`, the one that is meant where none is given first. */
  readonly sharings?: readonly Sharing[];
  /** The rows that loops share are the mean over all loops; those of the last loop unless given. */
  readonly averages?: true;
  /**
   * Loops whose rows are stored together, as differences to the last of them: they wait until it has run, and prompts
   * are taken in whole.
   */
  anchoredLoops?(g: Geometry): number;
  /** Another codec whose tensors this one reads. */
  readonly weightsOf?: CodecKind;
  /** Planned only where it is asked for by name. */
  readonly onlyAsked?: true;
  /** Settings that are planned where the codec is named, and not among all. */
  readonly unusual?: (codec: Codec) => boolean;
  /** K and V are rebuilt inside attention only, not in memory before it. */
  readonly fusedOnly?: true;
  /** Loops after the first attend to its rows and a window of their own, mixed by gates of heads (loop-window). */
  readonly windowsLoops?: true;
  /** Loops are packed as differences, and later ones run and read a part alone (flashloop). */
  streams?(g: Geometry, codec: Codec): Streams;
  /** Keys and values of later loops are projected from a state that a gate mixes (melt). */
  readonly gatesState?: true;
  /** What no decoder runs; any codec is decoded unless given. */
  readonly undecodable?: string;
  /** What the GPU decoder does not run of a setting, and the float64 one does. */
  referenceOnly?(codec: Codec): string | undefined;
  /** Why no eviction policy goes with it; any does unless given. */
  readonly refusesEviction?: string;
  /** ρ on the core, as the paper counts it: scalars of the full cache over those of the codec, scales left out. */
  ratio(g: Geometry, codec: Codec): number;
  /** Short and unique among published settings; `kind-RATIOx` unless given. */
  label?(codec: Codec): string;
  /** Behind the label, of a setting that is not the usual one. */
  suffix?(codec: Codec): string;
  /** The storage type that the codec brings along, for prelude and coda too; the one chosen unless given. */
  storage?(codec: Codec): Storage;
  /** True when one latent serves all loops and is complete only after the last one. */
  readonly loopAxis: boolean;
  /** Ratios that the paper publishes for this kind. */
  readonly publishedRatios: (g: Geometry) => readonly number[];
  /** The codec of this kind whose core ratio is (nearest to) `ratio`, or the reason why there is none. */
  fromRatio(g: Geometry, ratio: number): Codec | string;
  /** Why this codec cannot exist for the geometry, or undefined. */
  refuse(g: Geometry, codec: Codec): string | undefined;
  /** Cached tensors of the core. Prelude and coda are added by layoutOf. */
  core(g: Geometry, core: LayerBlock, codec: Codec, choice: StorageChoice): CacheTensor[];
  /** Codec parameters in scalars, for the whole model (Eq. encode and decode: W_down, W_up, mu). */
  parameters(g: Geometry, codec: Codec): number;
  /** Those of them that every GPU holds whole; none unless given. */
  wholeParameters?(g: Geometry, codec: Codec): number;
}
