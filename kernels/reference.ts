/** Types for comparing a kernel's outputs with its float64 reference. */
import type { OperationOptions } from './options.js';
import type { Words } from './host/cache-layout.js';
import type { OperationPlan } from './host/plan.js';
import type { KernelCall, KernelName, ShapeOf } from './registry.js';
import type { Shape } from './spec.js';

/** A buffer as the host knows it: scalar by scalar, in the order in which they are stored. */
export type Scalars = (index: number) => number;

export interface Subject {
  readonly call: KernelCall;
  readonly options: OperationOptions;
  readonly plan: OperationPlan;
  /** Operands as they were before the run. */
  readonly input: (name: string) => Scalars;
  /** Output as it is after the run. */
  readonly output: (name: string) => Scalars;
  /** The same as 32-bit words, for caches: a code is no number. */
  readonly inputWords: (name: string) => Words;
  readonly outputWords: (name: string) => Words;
}

/** One row of outputs: as it should be, and as it is. */
export interface Row {
  readonly expected: readonly number[];
  readonly actual: (index: number) => number;
}

export interface Checker {
  readonly outputs: readonly string[];
  readonly rows: (shape: Shape) => number;
  readonly row: (subject: Subject, row: number) => Row;
}

/** The shape of a call, which its kernel's plan has checked. */
export const dimsOf = <K extends KernelName>({ call }: Subject): ShapeOf<K> => call.shape as ShapeOf<K>;

/** A field of such a shape. */
export const dim = (shape: Shape, name: string): number => shape[name] as number;
