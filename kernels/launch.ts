/** Inputs and outputs of every launch, and a benchmark's values for what a shape does not state. */
import type { OperationPlan } from '../src/gpu/plan.js';
import type { AppendOptions } from './append/launch.js';
import type { AppendResidualOptions } from './append_residual/launch.js';
import type { AttendRebuildOptions } from './attend_rebuild/launch.js';
import type { ResidualOptions } from './attend_residual/launch.js';
import type { BlockVectorsOptions } from './block_vectors/launch.js';
import type { EvictOptions } from './evict/launch.js';
import type { EvictChunkOptions } from './evict_chunk/launch.js';
import type { EvictPrefillOptions } from './evict_prefill/launch.js';
import type { LoadOptions } from './load/launch.js';
import type { MassOptions } from './mass/launch.js';
import type { MassPrefillOptions } from './mass_prefill/launch.js';
import type { MatmulOptions } from './matmul/launch.js';
import type { KernelCall } from './registry.js';
import type { RopeOptions } from './rope/launch.js';
import type { RopeKeptOptions } from './rope_kept/launch.js';
import type { SampleOptions } from './sample/launch.js';
import type { CurrentOptions } from './shared/current.launch.js';
import type { RunOptions } from './shared/fold.launch.js';
import type { PrefillOptions } from './shared/prefill.launch.js';
import type { PlacementOptions } from './shared/rows.launch.js';

/** Chosen values by name, for one kernel. What is not named keeps the planner's own choice. */
export type Tuning = Readonly<Record<string, number>>;

export interface Tunable {
  readonly name: string;
  /** Values worth trying; planning and verification find out whether the device and a shape allow one. */
  readonly values: readonly number[];
}

/** The tuned value of that name, or the planner's own. */
export const tuned = (tuning: Tuning | undefined, name: string, own: number): number => tuning?.[name] ?? own;

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
   * Products of many rows go to matrix units, with the accuracy of f16 operands (shared/matrix.launch.ts):
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

/** A benchmark's values for what neither shape nor options state. A decoder gives its own. */
export const DEFAULTS = {
  ropeBase: 1e6,
  positions: 4096,
  vocabulary: 8192,
  eps: 1e-6,
  factor: 0.25,
  append: { capacity: 32 },
} as const satisfies OperationOptions;

export const rotaryOf = (call: KernelCall, options: OperationOptions) => ({
  ropeBase: options.ropeBase ?? DEFAULTS.ropeBase,
  positions: options.positions ?? Math.max(call.shape.context ?? 0, DEFAULTS.positions),
});

/** How a kernel is run. */
export interface Launch {
  /**
   * The buffers and steps of a call.
   * @throws GpuError `unsupported` for a shape or variant that the kernel does not handle
   */
  plan(call: KernelCall, options: OperationOptions): OperationPlan;
  /**
   * Constants that `calibrate --tune` tries, which change speed and not results. `plan` reads them with `tuned`; a name
   * that it does not read changes nothing.
   */
  readonly tunables?: readonly Tunable[];
}
