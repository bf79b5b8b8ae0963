/** What a validation found, and whether it holds. Base units: bytes, seconds, tokens. */
import type { Clock } from '../gpu/index.js';
import { type CapacityReport } from './memory/capacity.js';
import type { ControlRow } from './controls.js';
import { type CorrectnessReport } from './memory/correctness.js';
import type { StepRow, StepsReport } from './latency.js';
import type { LongContextReport } from './long-context.js';
import type { MemoryReport } from './memory/memory.js';
import type { PromptsReport } from './prefill.js';
import { type ServingReport } from './serving.js';
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
  readonly device: {
    readonly description: string;
    readonly driver: string;
    readonly software: boolean;
    readonly clock: Clock;
  };
  readonly calibration: {
    readonly file: string;
    readonly stale: readonly string[];
    /** How this machine differs from the measured one; null for the same. */
    readonly difference: string | null;
  } | null;
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
  const rows = new Map<
    string,
    {
      calls: number;
      measured: number;
      predicted: number;
      compared: { measuredSeconds: number; predicted: StepRow['predicted'] }[];
    }
  >();
  for (const { kernels } of steps) {
    for (const k of kernels) {
      const row = rows.get(k.kernel) ?? { calls: 0, measured: 0, predicted: 0, compared: [] };
      row.compared.push(k);
      rows.set(k.kernel, {
        ...row,
        calls: row.calls + k.calls,
        measured: row.measured + k.measuredSeconds,
        predicted: row.predicted + k.predicted.estimate,
      });
    }
  }
  const all = [...rows.values()].reduce((sum, r) => sum + r.measured, 0);
  return [...rows]
    .map(([kernel, r]): KernelSummary => ({
      kernel,
      calls: r.calls,
      measuredSeconds: r.measured,
      predictedSeconds: r.predicted,
      share: r.measured / all,
      errors: summarise(r.compared) as ErrorSummary,
    }))
    .sort((a, b) => b.measuredSeconds - a.measuredSeconds);
}

/** A relative error with its sign. */
export const signed = (x: number): string => `${x >= 0 ? '+' : '−'}${percent(Math.abs(x))}`;
