/** From a call of the registry to what has to be run for it. */
import type { KernelCall, KernelName } from '../../schedule/kernels.js';
import { GpuError } from '../errors.js';
import type { OperationPlan } from '../plan.js';
import { planAttend, planMerge } from './attend.js';
import { planAttendBlockAbsorbed } from './attend-block-absorbed.js';
import { planAttendRebuild, type AttendRebuildOptions } from './attend-rebuild.js';
import { planAppend, planEmbed, planRmsnorm, planRope, planSample, planSwiglu, type AppendOptions } from './elementwise.js';
import { planMatmul } from './matmul.js';
import { planRebuild } from './rebuild.js';

/** What a call's shape does not say, with the values that a benchmark takes. */
export interface OperationOptions extends AttendRebuildOptions {
  ropeBase?: number;
  /** Positions that the rotary tables must reach; the context unless given. */
  positions?: number;
  /** Position of the first cached token, for kernels that take a cache in order. */
  firstPosition?: number;
  vocabulary?: number;
  eps?: number;
  append?: AppendOptions;
}

/** Values for what neither shape nor options say: a benchmark's. A decoder gives its own. */
export const DEFAULTS = { ropeBase: 1e6, positions: 4096, vocabulary: 8192, eps: 1e-6, append: { heads: 1, side: 'key', capacity: 32 } } as const satisfies OperationOptions;

type Planner = (call: KernelCall, options: OperationOptions) => OperationPlan;

const rotaryOf = (call: KernelCall, options: OperationOptions) => ({
  ropeBase: options.ropeBase ?? DEFAULTS.ropeBase,
  positions: options.positions ?? Math.max(call.shape.context ?? 0, DEFAULTS.positions),
});

const PLANNERS: Partial<Record<KernelName, Planner>> = {
  embed: (call, o) => planEmbed(call, o.vocabulary ?? DEFAULTS.vocabulary),
  rmsnorm: (call, o) => planRmsnorm(call, o.eps ?? DEFAULTS.eps),
  rope: (call, o) => planRope(call, rotaryOf(call, o)),
  swiglu: planSwiglu,
  sample: planSample,
  matmul: planMatmul,
  append: (call, o) => planAppend(call, o.append ?? DEFAULTS.append),
  attend: (call, o) => planAttend(call, o.scale),
  attend_rebuild: (call, o) => planAttendRebuild(call, rotaryOf(call, o), o),
  attend_block_absorbed: (call, o) => planAttendBlockAbsorbed(call, { ropeBase: o.ropeBase ?? DEFAULTS.ropeBase, firstPosition: o.firstPosition ?? 0, ...(o.scale === undefined ? {} : { scale: o.scale }) }),
  attend_merge: planMerge,
  rebuild: (call, o) => planRebuild(call, rotaryOf(call, o)),
};

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
