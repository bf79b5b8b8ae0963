/** What a validation found, and whether it holds. Base units: bytes, seconds, tokens. */
import { groups as groupBy } from 'd3-array';
import type { AdapterDescription, Clock } from '../gpu/index.js';
import { sum } from '../numbers/statistics.js';
import type { CapacityReport } from './memory/capacity.js';
import type { Calibrated } from './calibrated.js';
import type { ControlRow } from './controls.js';
import type { CorrectnessReport } from './memory/correctness.js';
import type { StepRow, StepsReport } from './latency.js';
import type { LongContextReport } from './long-context.js';
import type { MemoryReport } from './memory/memory.js';
import type { PromptsReport } from './prefill.js';
import type { ServingReport } from './serving.js';
import { summarise, type ErrorSummary } from './statistics.js';

export const SECTIONS = ['memory', 'latency', 'capacity', 'long-context'] as const;
export type Section = (typeof SECTIONS)[number];

export interface Check {
  readonly name:
    | 'correctness'
    | 'memory'
    | 'step-median-error'
    | 'step-p90-error'
    | 'interval-coverage'
    | 'interval-width'
    | 'decoder-overhead'
    | 'capacity'
    | 'serving-tpot'
    | 'serving-e2el'
    | 'serving-order';
  /** `failed` sets the exit code where `strict`. */
  readonly status: 'holds' | 'failed' | 'not-checked';
  readonly strict: boolean;
  readonly found: string;
  readonly tolerance: string;
}

export interface ValidationReport {
  readonly schema: 'lla-sim/validate';
  readonly schemaVersion: 1;
  readonly program: string;
  readonly device: Readonly<Pick<AdapterDescription, 'description' | 'driver' | 'software'>> & {
    readonly clock: Clock;
  };
  readonly calibration: Pick<Calibrated, 'file' | 'stale' | 'difference'> | null;
  readonly quick: boolean;
  readonly seed: number;
  readonly elapsedSeconds: number;
  readonly checks: readonly Check[];
  readonly correctness: CorrectnessReport | null;
  readonly memory: MemoryReport | null;
  readonly latency:
    | (StepsReport & {
        readonly model: string;
        readonly controls: readonly ControlRow[];
        readonly summary: ErrorSummary | null;
        readonly kernels: readonly KernelSummary[];
        readonly prefill: PromptsReport;
      })
    | null;
  readonly capacity: CapacityReport | null;
  readonly longContext: LongContextReport | null;
  readonly serving: ServingReport | null;
  /** Why a section is missing, and what the reader should know. */
  readonly notes: readonly string[];
}

/** One kernel over all steps. */
export interface KernelSummary {
  readonly kernel: string;
  readonly calls: number;
  readonly measuredSeconds: number;
  readonly predictedSeconds: number;
  /** Share of all steps' measured time. */
  readonly share: number;
  readonly errors: ErrorSummary;
}

export const percent = (x: number): string => `${(100 * x).toFixed(1)} %`;

export const overheadOf = (step: StepRow): number => step.measuredSeconds / step.operationsSeconds - 1;

/** Kernels by the time that they take. */
export function kernelSummaries(steps: readonly StepRow[]): KernelSummary[] {
  const byKernel = groupBy(
    steps.flatMap(({ kernels }) => kernels),
    ({ kernel }) => kernel,
  );
  const rows = byKernel.map(([kernel, own]) => ({
    kernel,
    calls: sum(own.map(({ calls }) => calls)),
    measuredSeconds: sum(own.map(({ measuredSeconds }) => measuredSeconds)),
    predictedSeconds: sum(own.map(({ predicted }) => predicted.estimate)),
    errors: summarise(own) as ErrorSummary,
  }));
  const all = sum(rows.map(({ measuredSeconds }) => measuredSeconds));
  return rows
    .map(({ errors, ...row }): KernelSummary => ({ ...row, share: row.measuredSeconds / all, errors }))
    .sort((a, b) => b.measuredSeconds - a.measuredSeconds);
}

/** A relative error with its sign. */
export const signed = (x: number): string => `${x >= 0 ? '+' : '−'}${percent(Math.abs(x))}`;
