/**
 * What a call states beside its shape: the options of every kernel's launch, as types. A schedule gives them, launches
 * read them.
 */
import type { Placement, PlacementOptions, Rows } from './placement.js';
import type {
  AttendRebuildOptions,
  BlockVectorsOptions,
  CurrentOptions,
  MassPrefillOptions,
  PrefillOptions,
  RunOptions,
} from './attention-options.js';
import type {
  AppendOptions,
  AppendResidualOptions,
  AppendStreamsOptions,
  ChooseKeysOptions,
  EvictChunkOptions,
  EvictOptions,
  EvictPrefillOptions,
  LoadOptions,
  MassOptions,
  ResidualOptions,
  RopeKeptOptions,
  StreamsOptions,
} from './cache-options.js';

/** Chosen values by name, for one kernel. What is not named keeps the planner's own choice. */
export type Tuning = Readonly<Record<string, number>>;

/** Options that a call's shape does not state, with a benchmark's values. */
export interface OperationOptions extends AttendRebuildOptions {
  ropeBase?: number;
  /** Positions that the rotary tables must reach; the context unless given. */
  positions?: number;
  /** Position of the first cached token, for kernels that take a cache in order. */
  firstPosition?: number;
  vocabulary?: number;
  eps?: number;
  /** Of each loop's rows in a sum over loops. */
  factor?: number;
  /** Rows that an element-wise kernel reads and writes. */
  placement?: PlacementOptions;
  rope?: RopeOptions;
  ropeKept?: RopeKeptOptions;
  /** The embedding table is stored [width][vocabulary], like a tied output projection's weights. */
  embeddingColumns?: boolean;
  blockVectors?: BlockVectorsOptions;
  append?: AppendOptions;
  appendResidual?: AppendResidualOptions;
  appendStreams?: AppendStreamsOptions;
  streams?: StreamsOptions;
  chooseKeys?: ChooseKeysOptions;
  residual?: ResidualOptions;
  current?: CurrentOptions;
  matmul?: MatmulOptions;
  mass?: MassOptions;
  evict?: EvictOptions;
  prefill?: PrefillOptions;
  massPrefill?: MassPrefillOptions;
  evictPrefill?: EvictPrefillOptions;
  evictChunk?: EvictChunkOptions;
  load?: LoadOptions;
  sample?: SampleOptions;
  /**
   * Products of many rows go to matrix units, with the accuracy of f16 operands (shared/dense/matrix.launch.ts):
   * `deviceOptions` says whether there are any; false unless given.
   */
  matrixUnits?: boolean;
  /** The device is a software adapter: launch constants that suit one, where these differ from a GPU's. */
  software?: boolean;
  /** Threads of the smallest subgroup, 1 without subgroups; launches are made for 8 and more. */
  subgroupThreads?: number;
  /** Launch constants that `calibrate --tune` found; the planners' own unless given. */
  tuning?: Tuning;
  /** Segments, spans and splits of an attention call; a plain cache unless given. */
  run?: RunOptions;
}

export interface MatmulOptions {
  /** [group][m][k] side by side unless given. */
  readonly x?: Rows;
  /** [group][m][n] side by side unless given. */
  readonly y?: Rows;
  /** Groups that follow each other and share weights: query heads of a KV head. 1 unless given. */
  readonly weightGroup?: number;
  /** y += x W instead of y = x W. */
  readonly accumulate?: boolean;
  /** Weights are stored [group][n][k, in pairs] (matmul_transposed.wgsl). */
  readonly transposed?: boolean;
}

export interface RopeOptions {
  /** Rows of the data: queries and keys inside a packed row, for instance. Heads follow each other. */
  readonly data?: Placement;
  /** Rows that take the results of the first heads; in place unless given. */
  readonly target?: Placement & {
    /** Floats from a head to the next; the head width unless given. */ readonly head?: number;
  };
  /** How many heads go there: all unless given. The others are rotated in place. */
  readonly targetHeads?: number;
  /** Added to every position, which must not fall below 0. */
  readonly positionOffset?: number;
  /** A bias [head][head width] is added before the rotation. */
  readonly bias?: boolean;
}

export interface SampleOptions {
  /** Divides the logits; above 0. */
  readonly temperature: number;
  /** Probability that the nucleus reaches, above 0; 1 draws from all tokens. */
  readonly topP: number;
  readonly seed: number;
}
