/** The paper's figures, the model's answers to them, and the report that holds both side by side. Base units. */
import type { Codec, CodecKind, Path } from '../codecs/codec.js';
import type { PrefillKind } from '../cost/memory.js';
import type { Eviction } from '../eviction/policy.js';
import type { DeviceChoice } from '../plan/types.js';
import type { Contradiction } from '../quality/contradictions.js';
import type { QualityFigure, QualityModel } from '../quality/figure.js';

/**
 * - `exact`: the model's value, rounded to the digits that the paper prints, is the paper's.
 * - `by-definition`: it is, but the value follows from settings printed beside it: any label would pass.
 * - `inside`: the paper's value lies in the model's interval.
 * - `explained`: it does not, for a reason that is itself checked with numbers.
 * - `undecided`: it does not, and the reason holds beside another figure only under what the paper does not state.
 * - `not-predictable`: a planner cannot know it (accuracy needs the model's weights).
 * - `unexplained`: outside the interval, and the known reasons do not account for it.
 * - `wrong`: it must be exact and is not. The command then ends with exit code 5.
 */
export const VERDICTS = [
  'exact',
  'by-definition',
  'inside',
  'explained',
  'undecided',
  'not-predictable',
  'unexplained',
  'wrong',
] as const;
export type Verdict = (typeof VERDICTS)[number];

/** What a figure is expected to be. Only figures expected to be `exact` can be `wrong`. */
export type Expectation = 'exact' | 'interval' | 'explained' | 'not-predictable';

export type Unit = 'text' | 'ratio' | 'share' | 'bytes' | 'tokens' | 'count' | 'seconds' | 'tokens/s';

/** How a step is decoded: the codec, its path, and whether K and V are rebuilt into memory first. */
export interface Decoding {
  readonly codec: Codec;
  readonly path: Path;
  readonly materialised?: boolean;
}

/** A model that is decoded one way at a context. */
interface Decoded {
  readonly model: QualityModel;
  readonly decoding: Decoding;
  readonly contextTokens: number;
}

/** Published times of a decoding, and of the full cache beside it. */
interface Times {
  readonly seconds: number;
  readonly fullSeconds: number;
}

/** What a published figure is a figure of: the question that the planner is asked. */
export type Subject =
  /** (layer, loop) pairs with a cache of their own. */
  | { readonly of: 'cache-slots'; readonly model: QualityModel }
  /** ρ of given ranks, by Eq. ratio. */
  | { readonly of: 'ratio'; readonly model: QualityModel; readonly codec: Codec }
  /** Ranks that the planner chooses for a ratio. */
  | { readonly of: 'ranks'; readonly model: QualityModel; readonly ratio: number }
  /** Ratio of the setting that the planner chooses for a codec and a printed ratio; ranks are whole. */
  | { readonly of: 'reached-ratio'; readonly model: QualityModel; readonly kind: CodecKind; readonly ratio: number }
  /** Bytes of the full cache over bytes stored: group scales, rotary branch, prelude and coda included. */
  | { readonly of: 'stored-ratio'; readonly model: QualityModel; readonly codec: Codec; readonly path: Path }
  /** Cached scalars of one setting over those of another. */
  | { readonly of: 'scalar-ratio'; readonly model: QualityModel; readonly codec: Codec; readonly over: Codec }
  | { readonly of: 'codec-parameters'; readonly model: QualityModel; readonly codec: Codec }
  /** Whether the codec can be trained, as far as its parameters decide. */
  | { readonly of: 'codec-trainable'; readonly model: QualityModel; readonly codec: Codec }
  | { readonly of: 'kv-per-token'; readonly model: QualityModel; readonly codec: Codec }
  | { readonly of: 'kv-at-1m'; readonly model: QualityModel; readonly codec: Codec; readonly eviction: Eviction | null }
  | { readonly of: 'budget'; readonly eviction: Eviction }
  /** Share of a prompt of `fewest` to `most` tokens that is evicted. */
  | { readonly of: 'evicted-share'; readonly eviction: Eviction; readonly fewest: number; readonly most: number }
  /** The largest batch that fits, on the grid 2^k and 3·2^(k−1). */
  | ({ readonly of: 'max-batch' } & Decoded)
  /** Largest batch of `decoding` over that of the full cache. */
  | ({ readonly of: 'batch-gain' } & Decoded)
  | ({
      readonly of: 'step-seconds';
      readonly batch: number;
      /** Published peak of the full cache, tokens per second: a reason for the step must leave room for it. */
      readonly fullPeak: number;
    } & Decoded)
  /** Step time of `decoding` over that of the full cache. */
  | ({ readonly of: 'step-ratio'; readonly batch: number; readonly published: Times } & Decoded)
  /** Tokens per second at the largest batch of the grid. */
  | ({ readonly of: 'throughput' } & Decoded)
  /** Attention of one layer in all loops, for one sequence. */
  | ({ readonly of: 'layer-seconds' } & Decoded)
  /** The full cache's time over that of `decoding`, as above. */
  | ({ readonly of: 'layer-ratio'; readonly published: Times } & Decoded)
  /** Whether one prompt can be prefilled beside the weights and its own cache. */
  | {
      readonly of: 'prefill-fits';
      readonly model: QualityModel;
      readonly codec: Codec;
      readonly kind: PrefillKind;
      readonly contextTokens: number;
    }
  /** A number that needs the model's weights. */
  | { readonly of: 'accuracy' };

/** Those of a kind, or of several. */
export type Of<Kind extends Subject['of']> = Extract<Subject, { of: Kind }>;

/** One number or claim of the paper. */
export interface PaperFigure {
  /** Stable: `memory/kv-per-token/ouro-1.4b/full`. */
  readonly id: string;
  readonly section: string;
  /** Table by its LaTeX label (`Table memory`), or the passage of the text. */
  readonly source: string;
  readonly quantity: string;
  /** As printed. */
  readonly text: string;
  /** In base units; null for a claim in words, which is compared as text. */
  readonly value: number | null;
  /** Half a unit of the last digit printed, in base units. */
  readonly precision: number;
  readonly unit: Unit;
  readonly expect: Expectation;
  readonly subject: Subject;
}

/** The model's value of a figure. */
export interface Answer {
  readonly value: number | null;
  /** Ends of the interval; equal to the value where it has none. */
  readonly low: number | null;
  readonly high: number | null;
  readonly text: string;
  /** One line: how the value comes about, or why it is right as it is. */
  readonly reason: string;
  /** True where the value follows from settings printed beside it: no layout, memory, schedule or price is asked. */
  readonly byDefinition?: true;
  /** What the published value means in the model's terms; shown where it lies in the interval. */
  readonly remark?: (published: number) => string;
  /** Why a published value may differ from this one, or null when the known reason does not account for it. */
  readonly explain?: (published: number, text: string) => string | null;
  /** What the paper would have to state for the reason above to hold beside another figure; null where it holds. */
  readonly undecided?: (published: number) => string | null;
}

export interface Comparison {
  readonly id: string;
  readonly section: string;
  readonly source: string;
  readonly quantity: string;
  readonly unit: Unit;
  readonly published: { readonly text: string; readonly value: number | null };
  /** Null where nothing can be predicted. */
  readonly model: {
    readonly text: string;
    readonly value: number | null;
    readonly low: number | null;
    readonly high: number | null;
  } | null;
  readonly mustBeExact: boolean;
  readonly verdict: Verdict;
  readonly reason: string;
}

interface BeyondColumn {
  readonly name: string;
  readonly title: string;
  readonly unit: Unit;
}

/** Something that the paper does not say: a few sentences and a table of computed values. */
export interface Beyond {
  readonly id: string;
  readonly title: string;
  readonly text: string;
  readonly columns: readonly BeyondColumn[];
  readonly rows: readonly (readonly (number | string | null)[])[];
}

/** Each figure of the paper beside what the planner computes for it. */
export interface PaperReport {
  readonly schema: 'lla-sim/paper';
  /** 3: `undecided` in place of `contradicted`. 2: `exact` no longer counts figures that hold `by-definition`. */
  readonly schemaVersion: 3;
  readonly paper: string;
  readonly device: DeviceChoice & { readonly pricing: string };
  readonly verdicts: Readonly<Record<Verdict, number>>;
  readonly comparisons: readonly Comparison[];
  readonly beyond: readonly Beyond[];
  readonly quality: { readonly figures: readonly QualityFigure[]; readonly contradictions: readonly Contradiction[] };
  readonly notes: readonly string[];
}
