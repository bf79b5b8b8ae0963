/** From a call of the registry to what has to be run for it. */
import type { KernelCall, KernelName } from '../../kernels/registry.js';
import type { Device } from '../device.js';
import { GpuError } from '../errors.js';
import type { OperationPlan } from '../plan.js';
import { planAttend } from './attend.js';
import { planAttendBlockAbsorbed, planBlockBasis } from './attend-block-absorbed.js';
import { planBlockVectors, type BlockVectorsOptions } from './block-vectors.js';
import { planAttendRebuild, type AttendRebuildOptions } from './attend-rebuild.js';
import { planAppend, type AppendOptions } from './append.js';
import {
  planEmbed,
  planRmsnorm,
  planRope,
  planRopeKept,
  planSwiglu,
  type PlacementOptions,
  type RopeKeptOptions,
  type RopeOptions,
} from './elementwise.js';
import { planEvict, planMass, type EvictOptions, type MassOptions } from './evict.js';
import {
  planEvictChunk,
  planEvictPrefill,
  planMassPrefill,
  type EvictChunkOptions,
  type EvictPrefillOptions,
  type MassPrefillOptions,
} from './evict-prefill.js';
import { planMatmul, type MatmulOptions } from './matmul.js';
import { matrixUnitsObstacle } from './matrix.js';
import { planCurrent, planMerge, type CurrentOptions } from './merge.js';
import { planAttendCarried, planAttendPrefill, planLoad, type LoadOptions, type PrefillOptions } from './prefill.js';
import { planRebuild } from './rebuild.js';
import { planSample, type SampleOptions } from './sample.js';
import type { RunOptions } from './fold.js';
import type { Tuning } from './tuning.js';

/** What a call's shape does not say, with the values that a benchmark takes. */
export interface OperationOptions extends AttendRebuildOptions {
  ropeBase?: number;
  /** Positions that the rotary tables must reach; the context unless given. */
  positions?: number;
  /** Position of the first cached token, for kernels that take a cache in order. */
  firstPosition?: number;
  vocabulary?: number;
  eps?: number;
  /** Rows that an element-wise kernel reads and writes. */
  placement?: PlacementOptions;
  rope?: RopeOptions;
  ropeKept?: RopeKeptOptions;
  /** The embedding table lies [width][vocabulary], as a tied output projection's weights do. */
  embeddingColumns?: boolean;
  blockVectors?: BlockVectorsOptions;
  append?: AppendOptions;
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
   * Products of many rows go to matrix units, with the accuracy of f16 operands (matrix.ts): `deviceOptions` says
   * whether there are any; false unless given.
   */
  matrixUnits?: boolean;
  /** The device is a software adapter: launch constants that suit one, where these differ from a GPU's. */
  software?: boolean;
  /** Launch constants that `calibrate --tune` found; the planners' own unless given. */
  tuning?: Tuning;
  /** Segments, spans and splits of an attention call; a plain cache unless given. */
  run?: RunOptions;
}

/** Values for what neither shape nor options say: a benchmark's. A decoder gives its own. */
export const DEFAULTS = {
  ropeBase: 1e6,
  positions: 4096,
  vocabulary: 8192,
  eps: 1e-6,
  append: { capacity: 32 },
} as const satisfies OperationOptions;

type Planner = (call: KernelCall, options: OperationOptions) => OperationPlan;

const rotaryOf = (call: KernelCall, options: OperationOptions) => ({
  ropeBase: options.ropeBase ?? DEFAULTS.ropeBase,
  positions: options.positions ?? Math.max(call.shape.context ?? 0, DEFAULTS.positions),
});

const PLANNERS: Partial<Record<KernelName, Planner>> = {
  embed: (call, o) => planEmbed(call, o.vocabulary ?? DEFAULTS.vocabulary, o.placement, o.embeddingColumns),
  rmsnorm: (call, o) => planRmsnorm(call, o.eps ?? DEFAULTS.eps, o.placement, o.tuning),
  rope: (call, o) => planRope(call, rotaryOf(call, o), o.rope),
  rope_kept: (call, o) => planRopeKept(call, rotaryOf(call, o), o.ropeKept),
  swiglu: (call, o) => planSwiglu(call, o.placement),
  sample: (call, o) => planSample(call, o.sample),
  matmul: (call, o) => planMatmul(call, o.matmul, o.tuning, o),
  append: (call, o) => planAppend(call, o.append ?? DEFAULTS.append),
  attend: (call, o) => planAttend(call, o.scale, o.run, o.tuning),
  attend_rebuild: (call, o) => planAttendRebuild(call, rotaryOf(call, o), o, o.run, o.tuning),
  block_vectors: (call, o) => planBlockVectors(call, o.pairing, o.blockVectors, o.tuning),
  block_basis: (call, o) => planBlockBasis(call, rotaryOf(call, o), o.run, o.tuning),
  attend_block_absorbed: (call, o) =>
    planAttendBlockAbsorbed(call, { ...rotaryOf(call, o), software: o.software ?? false }, o.scale, o.run, o.tuning),
  attend_merge: (call, o) => planMerge(call, o.current, o.tuning),
  attend_current: (call, o) => planCurrent(call, o.current, o.tuning),
  mass: (call, o) => planMass(call, o.mass),
  evict: (call, o) => planEvict(call, o.evict),
  attend_prefill: (call, o) => planAttendPrefill(call, o.prefill, o.tuning),
  attend_carried: (call, o) => planAttendCarried(call, o.prefill, o.tuning),
  mass_prefill: (call, o) => planMassPrefill(call, o.massPrefill, o.tuning),
  evict_prefill: (call, o) => planEvictPrefill(call, o.evictPrefill),
  evict_chunk: (call, o) => planEvictChunk(call, o.evictChunk),
  load: (call, o) => planLoad(call, o.load),
  rebuild: (call, o) => planRebuild(call, rotaryOf(call, o), o, o.run, o.tuning),
};

/**
 * What a device decides of every call: launch constants of software adapters, and matrix units where there are any that
 * fit.
 */
export const deviceOptions = (device: Device): Pick<OperationOptions, 'software' | 'matrixUnits'> => ({
  software: device.description.software,
  matrixUnits: matrixUnitsObstacle(device) === null,
});

/** Kernels that have an implementation. */
export const IMPLEMENTED = Object.keys(PLANNERS) as KernelName[];

/**
 * The buffers and steps of a call.
 * @throws GpuError `unsupported` for a shape or variant that no kernel handles
 */
export function planOperation(call: KernelCall, options: OperationOptions = {}): OperationPlan {
  const planner = PLANNERS[call.kernel];
  if (!planner) throw new GpuError('unsupported', `${call.kernel} has no kernel yet`);
  return planner(call, options);
}
