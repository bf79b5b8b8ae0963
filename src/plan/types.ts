/** What a plan is asked and what it answers. Base units: bytes, seconds, tokens. */
import type {
  Branch,
  Codec,
  FlashloopConstants,
  FlashloopTokens,
  Path,
  PathChoice,
  ResidualForm,
  Sharing,
} from '../codecs/codec.js';
import type { StorageChoice } from '../codecs/layout.js';
import type { Evidence, Interval } from '../cost/evidence.js';
import type { Runtime } from '../stacks/runtime.js';
import type { Pricer, StepPrice } from '../cost/latency.js';
import type { PrefillKind } from '../cost/memory.js';
import type { Fidelity, MeasuredRow } from './evaluate/fidelity.js';
import type { Nearest } from './decide/nearest.js';
import type { Timed } from './evaluate/chance.js';
import type { Eviction } from '../eviction/policy.js';
import type { Geometry } from '../geometry/geometry.js';
import type { ComparedFigure, ReliableRetrieval } from '../quality/quality.js';
import type { Contradiction } from '../quality/contradictions.js';
import type { ServerMemory } from '../stacks/server-memory.js';
import type { Tested } from './ask/tested.js';
import type { Answer, Mark, Warning } from './answer-types.js';

/** One combination to plan. */
export interface Candidate {
  readonly codec: Codec;
  readonly path: Path;
  /** `reconstruct` with K and V rebuilt into memory first. */
  readonly materialised: boolean;
  readonly eviction: Eviction | null;
  /** Shown beside the others: nobody asked for it, and no answer names it. */
  readonly beside?: true;
}

/** A metric's lower bound, in every published figure or in those of one table. */
export interface MinimumTarget {
  readonly metric: string;
  readonly value: number;
  /** Restricts the figures to one table (`isocache`). */
  readonly table?: string;
}

export interface Targets {
  readonly minimums: readonly MinimumTarget[];
  /** Published reliable-retrieval length must reach this. */
  readonly retrievalTokens: number | null;
  /** Seconds a decode step may take, with the request's confidence. */
  readonly secondsPerToken: number | null;
  /** Seconds the prefill of one prompt may take, with the request's confidence. */
  readonly secondsToFirstToken: number | null;
  /** Nats a token: the upper end of the KL that was measured of the model (`--fidelity`). Absent: not asked. */
  readonly maxKl?: number;
  /** The lower end of the recall that was measured must reach this. Absent: not asked. */
  readonly minRecall?: number;
}

/** The device that was chosen, and its memory. */
export interface DeviceChoice {
  readonly id: string | null;
  readonly name: string;
  readonly vramBytes: number;
  readonly calibration: { readonly file: string; readonly adapter: string; readonly software: boolean } | null;
}

/** A question to the planner in base units, with prices and candidates. */
export interface PlanRequest {
  readonly scenario: PlanReport['scenario'];
  readonly geometry: Geometry;
  /** The name under which figures are published for this model; null when none are. */
  readonly publishedAs: string | null;
  /** What `lla-sim fidelity` measured of this model: then no published table counts. */
  readonly fidelity?: Fidelity;
  readonly device: DeviceChoice;
  /** Null when nothing is known about the device's speed: then no latency is predicted. */
  readonly pricer: Pricer | null;
  /** The program around the kernels, where the pricer counts it; another attention kernel, where none was asked for. */
  readonly runtime?: Runtime;
  readonly otherAttention?: () => { readonly name: string; readonly pricer: Pricer } | null;
  /** Loops that tokens take in the mean, where its runtime lets them leave early (`--depth`). */
  readonly meanLoops?: number;
  /** What tuned kernels reach on the device, beside a calibration that prices: a slow kernel is no slow codec. */
  readonly attainable?: Pricer;
  /** Tuned kernels under the same server, beside a stack's tables that price. */
  readonly tuned?: () => Pricer;
  /** Beside a stack's tables that price: those of other stacks on this device. */
  readonly otherStacks?: () => readonly { readonly stack: string; readonly pricer: Pricer }[];
  /** Whose kernels price: a stack, `lla-sim` or `attainable`; null where nothing is known about speed. */
  readonly stack: string | null;
  readonly tables: PlanReport['stack'];
  /** `--stack attainable`: without the device's tables. */
  readonly tablesLeftOut?: true;
  /** Whose server would run a full cache, where one is known; its version is null for today's. */
  readonly servingStack: string | null;
  readonly servingVersion: string | null;
  readonly contextTokens: number;
  readonly candidates: readonly Candidate[];
  /** Element type of the cache as the user named it: f16, bf16, f32, int8, int4. */
  readonly cacheType: string;
  readonly choice: StorageChoice;
  readonly branch: Branch;
  readonly utilization: number;
  readonly reserveBytes: number;
  /** What the chosen server keeps for itself; null where none is chosen. */
  readonly server: ServerMemory | null;
  readonly pageTokens: number;
  readonly gpus: number;
  readonly targetWorkgroups: number;
  /** Largest binding of the device, bytes; Infinity where it is not known. */
  readonly bindingBytes: number;
  readonly prefill: PrefillKind;
  /** Tokens of a prompt that are worked on at once; absent: as lla-sim's decoder has it. */
  readonly promptChunkTokens?: number;
  /** Sequences decoded together; null: as many as fit. */
  readonly batch: number | null;
  /** Of the scenario's server: sequences that it runs at once, and tokens of the longest one. */
  readonly mostSequences?: number;
  readonly maxModelLen?: number;
  readonly targets: Targets;
  /** Probability with which time targets must be met, 0.5 to 0.999. */
  readonly confidence: number;
  /** Share of the uncompressed model's scores that a recommended plan keeps. */
  readonly keep: number;
  readonly usdPerHour: number | null;
  /** How predictions fared on figures nearest to the question, and, where they have a target, on first tokens. */
  readonly tested: Tested | null;
  readonly testedFirst?: Tested | null;
  /** What the reader should know about the input: a device picked by memory, a stale calibration, ... */
  readonly notes: readonly string[];
}

/** Decoding at one batch. Null times where the device's speed is unknown. */
export interface DecodeFigures {
  readonly batch: number;
  readonly secondsPerStep: Interval | null;
  readonly tokensPerSecond: Interval | null;
  readonly evidence: Evidence | null;
  readonly evidenceShare: StepPrice['evidenceShare'] | null;
  /** Whose kernels the time rests on: a stack, `lla-sim`, `attainable` or `datasheet`; null without times. */
  readonly kernels: string | null;
  /** Share of the time by whose kernels it rests on, such as `vLLM 0.24.0` and `attainable`. */
  readonly pricedBy: StepPrice['pricedBy'] | null;
  /** Share of the attainable rate at which it is as fast as the measured full cache; null where none is. */
  readonly breakEven: number | null;
  /** Seconds a step of tuned kernels; only beside times that a calibration prices. */
  readonly attainable?: Interval;
  /** Lower bound of a step in seconds: memory and arithmetic at the datasheet's rates. */
  readonly floor: StepPrice['floor'];
  /** The part of a step that nobody has measured. */
  readonly unmeasured: Interval | null;
  readonly octavesOutside: number | null;
  readonly communicationPriced: boolean;
  readonly usdPerMillionTokens: Interval | null;
}

/** Where a plan is run, with what each user sees. */
export interface OperatingPoint extends DecodeFigures {
  readonly tokensPerSecondPerUser: Interval | null;
}

/** Prefill of a prompt of as many tokens as the context: time, rate, first token. Null where `notPriced` says why. */
export interface PromptFigures {
  readonly secondsPerPrompt: Interval | null;
  /** With what a server takes between a user and its scheduler. */
  readonly secondsToFirstToken: Interval | null;
  readonly tokensPerSecond: Interval | null;
  readonly evidence: Evidence | null;
  readonly evidenceShare: StepPrice['evidenceShare'] | null;
  readonly pricedBy: StepPrice['pricedBy'] | null;
  readonly octavesOutside: number | null;
  readonly notPriced: string | null;
}

/** The batch that misses --tpot by least, and the best probability of meeting it among those that were tried. */
interface NearestBatch extends Timed {
  readonly batch: number;
  readonly likeliest: number;
}

/** A published score beside the uncompressed model's in the same table. */
export interface Score {
  /** Score over the uncompressed model's. */
  readonly share: number;
  readonly metric: string;
  readonly value: number;
  readonly teacher: number;
  readonly source: string;
  /** Context at which it was measured, where it has one. */
  readonly contextTokens: number | null;
  /** It was measured at a shorter context than the asked one, where no more is kept. */
  readonly atMost?: boolean;
  /** Generated with two passes a token over a full-width cache, which saves no memory; times are of one pass. */
  readonly twoPasses?: boolean;
  /** No score: an error as a multiple of LLA's at the same budget. */
  readonly times?: boolean;
  /** Of a score measured here: its 95 % interval; `share` is that of the low end. */
  readonly interval?: Interval;
}

/** Another checkpoint of the same codec. */
interface OtherCheckpoint {
  readonly checkpoint: string;
  /** Of its worst score. */
  readonly share: number;
  /** Its scores that count at this context, worst first; scores of no one checkpoint stand with each. */
  readonly scores: readonly Score[];
}

/** The worst score of a checkpoint, and the others. */
export interface QualityKept extends Score {
  /** Distinct generation and retrieval tasks among the scores. */
  readonly generationTasks: number;
  /** The checkpoint that has these scores; null where none has to be trained or is named. */
  readonly checkpoint: string | null;
  /** All that count at this context, worst first. */
  readonly scores: readonly Score[];
  /** The other checkpoints of this codec, worst first. */
  readonly others: readonly OtherCheckpoint[];
  /** Retrieval is published at this context or a longer one. */
  readonly retrievalKnown: boolean;
}

/** A row of a plan: one codec, path and eviction on the device; bytes, seconds, tokens. */
export interface Plan {
  readonly id: string;
  readonly codec: {
    readonly kind: Codec['kind'];
    readonly label: string;
    readonly rankK?: number;
    readonly rankV?: number;
    readonly bits?: number;
    /** Form of residual-quant: bits of its anchor, and its groups. */
    readonly residual?: ResidualForm;
    /** Which tokens the context is counted as (flashloop). */
    readonly tokens?: FlashloopTokens;
    /** Its numbers, where they are not the published ones. */
    readonly constants?: FlashloopConstants;
    readonly shareLayers?: number;
    readonly rankFirst?: number;
    readonly windowTokens?: number;
    /** When all loops read one set of rows; absent where they do not. */
    readonly shared?: Sharing;
    readonly ratio: number;
    readonly modelRatio: number;
    readonly storedRatio: number;
  };
  readonly cacheType: string;
  readonly path: Path;
  readonly variant: 'fused' | 'materialised' | null;
  readonly eviction: Eviction | null;
  /** Shown beside the others: no answer names it. */
  readonly beside?: true;
  readonly memory: {
    readonly weightsBytes: number;
    readonly codecBytes: number;
    readonly reservedBytes: number;
    readonly workspaceBytes: number;
    readonly kvBytesPerToken: number;
    readonly kvBytesPerSequence: number;
    readonly inFlightBytesPerSequence: number;
    readonly evictionBytesPerSequence: number;
    readonly workspaceBytesPerSequence: number;
    readonly kvBytesAt1M: number;
    readonly prefillPeakBytes: number;
    /** At the decode batch, reserve included; where that does not fit, of the batch asked for (or one sequence). */
    readonly totalBytes: number;
    readonly usableBytes: number;
  };
  readonly maxBatch: { readonly exact: number; readonly onGrid: number };
  readonly limitedBy: LimitedBy;
  readonly prefill: {
    readonly kind: PrefillKind;
    readonly peakBytes: number;
    readonly fits: boolean;
    readonly batchBesidePrefill: number;
    readonly peakBytesByKind: Readonly<Record<PrefillKind, number>>;
  } & PromptFigures;
  /** At --batch, else at the largest batch that fits. The table, CSV and page show it where `knee` is null. */
  readonly decode: DecodeFigures;
  /** The stack that runs this plan today with the model; null: nobody does, its kernels would have to be written. */
  readonly servedBy: string | null;
  /** What kernels that nobody has measured must reach for this plan to pay off; null where all are measured. */
  readonly breakEven: BreakEven | null;
  /** What it becomes with latents' kernels as they have been built; null without latents, or where nobody built any. */
  readonly asPublished: AsPublished | null;
  /**
   * The operating point, which the table, CSV and page show: at --batch; with --tpot at the largest batch in time; else
   * at the smallest with 90 % of the best throughput. Null where nothing fits, where no batch meets the target, where
   * nothing is known about speed, and in a short table for paths that it does not show.
   */
  readonly knee: OperatingPoint | null;
  /**
   * Probability that each time target is met, at the operating point or, where no batch meets it, at the nearest.
   * Null without that target and where brackets of datasheet rates cannot tell.
   */
  readonly chances: { readonly tpot: number | null; readonly ttft: number | null };
  /** Decoding at the largest batch that meets --tpot; null without that target or when none does. */
  readonly atTarget: DecodeFigures | null;
  /** Where no batch meets --tpot: the one that misses it by least, or --batch; else null. */
  readonly nearest: NearestBatch | null;
  readonly quality: readonly ComparedFigure[];
  readonly reliableRetrieval: ReliableRetrieval | null;
  /**
   * Smallest published share of the uncompressed model's value over all scores that count at the context, of the
   * checkpoint that keeps most; null when unknown.
   */
  readonly qualityKept: QualityKept | null;
  /** With `--fidelity`: what was measured of this configuration of this model; null where the file has none. */
  readonly measured?: MeasuredRow | null;
  readonly marks: readonly Mark[];
  readonly pareto: boolean;
}

/**
 * The share of the attainable rate at which a plan's tokens per second equal those of the measured full cache: s =
 * T_att / (B / F − T_rest), with B its batch, T_att its unmeasured kernels at the attainable price, T_rest the others,
 * F the full cache's tokens per second. At most 1, which is the rate of tuned kernels.
 */
export interface BreakEven extends Interval {
  /** Not even tuned kernels make it as fast as the full cache: the estimate would exceed 1. */
  readonly cannot: boolean;
}

/** A plan with kernels of latents as fast as published implementations are. */
export interface AsPublished {
  /** The path that was built: the plan's own, or another one of its codec. */
  readonly path: PathChoice;
  readonly batch: number;
  /** Share of the speed of tuned kernels. */
  readonly reached: Interval;
  readonly secondsPerStep: Interval;
  readonly tokensPerSecond: Interval;
  /** Tokens a second over those of the full cache here; null where that has no price. */
  readonly ofFull: number | null;
  readonly implementations: readonly {
    readonly source: string;
    readonly where: string;
    /** Share of a tuned speed; null where too little is published to price it. */
    readonly reached: number | null;
    /** Tokens a second of all sequences over the full cache's, by the same authors; null where they give a step. */
    readonly ofFull: number | null;
  }[];
}

export type LimitedBy = 'kv-cache' | 'workspace' | 'in-flight' | 'weights' | 'codec-parameters' | 'prefill';

/** A row that a target removed, with the target. */
export interface Removed {
  readonly id: string;
  readonly target: string;
  readonly reason: string;
}

/** What `plan` answers, as `--format json` prints it; bytes, seconds, tokens, dollars. */
export interface PlanReport {
  readonly schema: 'lla-sim/plan';
  readonly schemaVersion: 2;
  /** The scenario's own words, where it has any. */
  readonly scenario: { readonly name: string | null; readonly description: string | null };
  readonly model: Geometry & { readonly parameters: number; readonly weightsBytes: number };
  readonly device: DeviceChoice & { readonly pricing: string; readonly stack: string | null };
  readonly contextTokens: number;
  /** The tables of a server's kernels that price, such as `vllm` `0.24.0`; null where none do. */
  readonly stack: { readonly name: string; readonly version: string; readonly file: string } | null;
  /** With `--fidelity`: where the quality of the rows was measured. */
  readonly fidelity?: Omit<Fidelity, 'rows'>;
  readonly settings: {
    readonly cacheType: string;
    readonly groupSize: number;
    readonly utilization: number;
    readonly reserveBytes: number;
    /** What the server keeps by default, which `reserve` and `utilization` override; null without one. */
    readonly server: ServerMemory | null;
    readonly pageTokens: number;
    readonly gpus: number;
    readonly prefill: PrefillKind;
    readonly batch: number | null;
    readonly usdPerHour: number | null;
    readonly targets: Targets;
    readonly confidence: number;
    readonly keep: number;
  };
  readonly plans: readonly Plan[];
  readonly answer: Answer;
  readonly removed: readonly Removed[];
  /** Where targets of time removed every plan: the one that misses them by least; else null. */
  readonly nearest: Nearest | null;
  /** Combinations that were left out because they cannot exist for this model. */
  readonly refused: readonly { readonly id: string; readonly reason: string }[];
  readonly contradictions: readonly Contradiction[];
  /** How predictions fared on published figures nearest to the question; null where none judge. */
  readonly tested: Tested | null;
  /** What the reader should know about the input. */
  readonly notes: readonly string[];
  /** Everything that the printers warn of. */
  readonly warnings: readonly Warning[];
}
