/** Inputs and outputs of every launch, and a benchmark's values for what a shape does not state. */
import type { OperationOptions, Tuning } from './options.js';
import type { OperationPlan } from './host/plan.js';
import type { KernelCall } from './registry.js';

export interface Tunable {
  readonly name: string;
  /** Values worth trying; planning and verification find out whether the device and a shape allow one. */
  readonly values: readonly number[];
}

/** The tuned value of that name, or the planner's own. */
export const tuned = (tuning: Tuning | undefined, name: string, own: number): number => tuning?.[name] ?? own;

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
