/** What a validation found, and whether it holds. Base units: bytes, seconds, tokens. */
import type { Clock } from '../gpu/index.js';
import { CAPACITY_TOLERANCE, capacityHolds, type CapacityReport } from './memory/capacity.js';
import type { ControlRow } from './controls.js';
import { LOGIT_TOLERANCE, type CorrectnessReport } from './memory/correctness.js';
import type { StepRow, StepsReport } from './latency.js';
import type { LongContextReport } from './long-context.js';
import type { MemoryReport } from './memory/memory.js';
import type { PromptsReport } from './prefill.js';
import { SERVING_TOLERANCES, type ServingReport, type ServingRow } from './serving.js';
import { best } from '../numbers/best.js';
import { quantile } from '../numbers/statistics.js';
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

/** Shortest context at which the decoder's overhead is judged. */
const OVERHEAD_CONTEXT = 1024;
const OVERHEAD_TOLERANCE = 0.1;
export const TOLERANCES = { software: { median: 0.06, p90: 0.15 }, hardware: { median: 0.04, p90: null } } as const;
const COVERAGE = [0.85, 0.97] as const;
/** Of a step's interval: the median half-width, and the widest factor either way inside the measured range. */
const WIDTHS = { median: 0.25, worst: 3 } as const;

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

/** @param found null where there was nothing to check */
const check = (
  name: Check['name'],
  strict: boolean,
  tolerance: string,
  found: { ok: boolean; text: string } | null,
): Check => ({
  name,
  strict,
  tolerance,
  status: found === null ? 'not-checked' : found.ok ? 'holds' : 'failed',
  found: found?.text ?? '–',
});

/** A relative error with its sign. */
export const signed = (x: number): string => `${x >= 0 ? '+' : '−'}${percent(Math.abs(x))}`;

/** An error of a simulation, of nothing where it is null. @param more words after it */
const withinCheck = (name: Check['name'], strict: boolean, most: number, error: number | null, more = ''): Check =>
  check(
    name,
    strict,
    `within ${percent(most)}`,
    error === null ? null : { ok: Math.abs(error) <= most, text: `${signed(error)}${more}` },
  );

interface Judged {
  readonly software: boolean;
  readonly quick: boolean;
  readonly correctness: CorrectnessReport | null;
  readonly memory: MemoryReport | null;
  readonly steps: readonly StepRow[] | null;
  readonly capacity: CapacityReport | null;
}

/**
 * Compares the findings with the tolerances. Times of `quick` are reported and never strict: it runs on noisy machines.
 */
export function judge({ software, quick, correctness, memory, steps, capacity }: Judged): Check[] {
  const strict = !quick;
  const worst =
    correctness?.rows.reduce(
      (a, b) => (b.error / b.tolerance > a.error / a.tolerance ? b : a),
      correctness.rows[0] as CorrectnessReport['rows'][number],
    ) ?? null;
  const summary = steps ? summarise(steps) : null;
  const limits = software ? TOLERANCES.software : TOLERANCES.hardware;
  const overheads = (steps ?? []).filter((s) => s.contextTokens >= OVERHEAD_CONTEXT).map(overheadOf);
  const wrong = capacity?.rows.filter((r) => !capacityHolds(r)) ?? [];
  return [
    check(
      'correctness',
      true,
      `logits within ${LOGIT_TOLERANCE.f32} (rounded twice ${LOGIT_TOLERANCE.rounded})`,
      worst === null
        ? null
        : {
            ok: worst.error <= worst.tolerance,
            text: `${worst.error.toExponential(1)} at worst, ${correctness?.rows.length} configurations`,
          },
    ),
    check(
      'memory',
      true,
      'equal to the byte',
      memory && memory.rows.length > 0
        ? {
            ok: memory.mismatches.length === 0,
            text: `${memory.rows.length - memory.mismatches.length} of ${memory.rows.length} configurations equal`,
          }
        : null,
    ),
    check(
      'capacity',
      true,
      `within ${percent(CAPACITY_TOLERANCE)}, equal on the grid`,
      capacity && capacity.rows.length > 0
        ? {
            ok: wrong.length === 0,
            text:
              `${capacity.rows.length - wrong.length} of ${capacity.rows.length} ` +
              `codecs${capacity.notRun.length > 0 ? `, ${capacity.notRun.length} not checked` : ''}`,
          }
        : null,
    ),
    check(
      'step-median-error',
      strict,
      `at most ${percent(limits.median)}`,
      summary && { ok: summary.medianError <= limits.median, text: percent(summary.medianError) },
    ),
    ...(limits.p90 === null
      ? []
      : [
          check(
            'step-p90-error',
            strict,
            `at most ${percent(limits.p90)}`,
            summary && { ok: summary.p90Error <= limits.p90, text: percent(summary.p90Error) },
          ),
        ]),
    check(
      'interval-coverage',
      strict,
      `${percent(COVERAGE[0])} to ${percent(COVERAGE[1])}, and one step above`,
      summary && { ok: coverageHolds(summary), text: `${percent(summary.coverage)} of ${summary.count} steps` },
    ),
    check(
      'interval-width',
      strict,
      `median ± ${percent(WIDTHS.median)}, none beyond ${WIDTHS.worst}×`,
      widthsOf(steps),
    ),
    check(
      'decoder-overhead',
      strict,
      `median at most ${percent(OVERHEAD_TOLERANCE)} from ${OVERHEAD_CONTEXT} tokens on`,
      overheads.length === 0
        ? null
        : {
            ok: quantile(overheads, 0.5) <= OVERHEAD_TOLERANCE,
            text: `${percent(quantile(overheads, 0.5))}, at worst ${percent(Math.max(...overheads))}`,
          },
    ),
  ];
}

/** Half-widths of the steps' intervals: a covered time inside a useless interval is no prediction. */
function widthsOf(steps: readonly StepRow[] | null): { ok: boolean; text: string } | null {
  if (!steps || steps.length === 0) return null;
  const median = quantile(
    steps.map(({ predicted: { low, high } }) => Math.sqrt(high / low) - 1),
    0.5,
  );
  const worst = Math.max(
    1,
    ...steps
      .filter((s) => s.octavesOutside === 0)
      .map(({ predicted: { estimate, low, high } }) => Math.max(high / estimate, estimate / low)),
  );
  return {
    ok: median <= WIDTHS.median && worst <= WIDTHS.worst,
    text: `± ${percent(median)}, at worst ${worst.toFixed(2)}× inside the measured range`,
  };
}

type JudgedRow = Pick<ServingRow, 'meanTpotSeconds' | 'p90E2elSeconds' | 'pairs' | 'inverted' | 'replay'>;

/** The serving loop against the simulation: the worst of the rows. */
export function servingChecks(rows: readonly JudgedRow[], strict: boolean): Check[] {
  const worst = (of: (row: JudgedRow) => { measured: number; simulated: number }): number | null => {
    const errors = rows.map(of).map(({ measured, simulated }) => simulated / measured - 1);
    return best(errors, Math.abs) ?? null;
  };
  const pairs = rows.reduce((sum, row) => sum + row.pairs + row.replay.pairs, 0);
  const inverted = rows.reduce((sum, row) => sum + row.inverted + row.replay.inverted, 0);
  const order = check(
    'serving-order',
    strict,
    'equal where the schedule decides it',
    rows.length === 0 ? null : { ok: inverted === 0, text: '' },
  );
  const [tpot, e2el] = [worst((r) => r.meanTpotSeconds), worst((r) => r.p90E2elSeconds)];
  return [
    withinCheck('serving-tpot', strict, SERVING_TOLERANCES.tpot, tpot, ' at worst'),
    withinCheck('serving-e2el', strict, SERVING_TOLERANCES.e2el, e2el, ' at worst'),
    { ...order, found: `${inverted} of ${pairs} pairs differ` },
  ];
}

/**
 * Few steps cannot show a coverage below 100 %: one step is forgiven above, where intervals are too wide, and none
 * below.
 */
const coverageHolds = ({ coverage, count }: ErrorSummary): boolean =>
  coverage >= COVERAGE[0] && coverage <= COVERAGE[1] + 1 / count;

/** True where the exit code has to say so. */
export const outsideTolerance = (checks: readonly Check[]): boolean =>
  checks.some((c) => c.strict && c.status === 'failed');

/** One paragraph that a reader can act on. */
export function verdict(r: ValidationReport): string[] {
  const failed = r.checks.filter((c) => c.status === 'failed');
  const open = r.checks.filter((c) => c.status === 'not-checked');
  const lines: string[] = [];
  if (failed.length === 0 && open.length === 0)
    lines.push('Trust the predictions on this device within the errors below: every tolerance holds.');
  else if (failed.length === 0)
    lines.push(
      `Nothing that was checked is outside its tolerance; not checked: ${open.map((c) => c.name).join(', ')}.`,
    );
  else
    lines.push(
      `Do not trust without a second look: outside tolerance ${failed.length === 1 ? 'is' : 'are'} ` +
        `${failed.map((c) => `${c.name} (${c.found}, wanted ${c.tolerance})`).join('; ')}.`,
    );
  if (r.memory) {
    const { rows, mismatches, notRun } = r.memory;
    lines.push(
      mismatches.length === 0
        ? `Memory is exact in all ${rows.length} configurations.`
        : `Memory differs from what is allocated in ${mismatches.length} of ${rows.length} configurations: ` +
            `${kindsThatDiffer(r.memory)}.`,
    );
    if (notRun.length > 0)
      lines.push(`${notRun.length} configurations are not executed by the decoder and were not checked.`);
  }
  const worst = r.latency && worstKernel(r.latency.kernels);
  if (r.latency?.summary && worst) {
    lines.push(
      `Step times are ${percent(Math.abs(r.latency.summary.bias))} too ` +
        `${r.latency.summary.bias > 0 ? 'long' : 'short'} in the median. Most of the error comes from ` +
        `${worst.kernel}: ${percent(Math.abs(worst.predictedSeconds / worst.measuredSeconds - 1))} too ` +
        `${worst.predictedSeconds > worst.measuredSeconds ? 'long' : 'short'}, ${percent(worst.share)} ` +
        'of the time.',
    );
  }
  const drifted = r.latency?.steps.flatMap((s) => s.drift) ?? [];
  if (r.latency && drifted.length > 0) {
    lines.push(
      `While steps were measured the machine ran at ${(1 / quantile(drifted, 0.5)).toFixed(2)} times ` +
        `its speed at calibration (${(1 / quantile(drifted, 0.95)).toFixed(2)} to ` +
        `${(1 / quantile(drifted, 0.05)).toFixed(2)}); times are corrected for it.`,
    );
    lines.push(...controlsVerdict(r.latency));
  }
  if (r.calibration && r.calibration.stale.length > 0)
    lines.push(
      `The calibration is stale for ${r.calibration.stale.join(', ')}: those are priced by roofline, ` +
        'so that step errors say little about the model. Measure again with lla-sim calibrate.',
    );
  return lines;
}

/** How the calibration's own points, measured again, changed the error. */
function controlsVerdict({ controls, steps }: NonNullable<ValidationReport['latency']>): string[] {
  const uncorrected = summarise(
    steps.map(({ measuredSeconds, kernelDrift, predicted }) => ({
      measuredSeconds: measuredSeconds * kernelDrift,
      predicted,
    })),
  );
  if (controls.length === 0 || !uncorrected) return [];
  const drift = quantile(
    steps.map((s) => s.kernelDrift),
    0.5,
  );
  return [
    `${controls.length} points of the calibration were measured again beside them. Beyond the ` +
      `machine's speed, the steps' kernels drifted to ${drift.toFixed(2)} times their calibrated time; ` +
      'times are corrected for that too. Without this correction the median error would be ' +
      `${percent(uncorrected.medianError)}, the 90th percentile ${percent(uncorrected.p90Error)} and ` +
      `the coverage ${percent(uncorrected.coverage)}. A plan may be off by as much on a machine that ` +
      'has changed since its calibration.',
  ];
}

/** Kernel whose error adds most seconds. */
const worstKernel = (kernels: readonly KernelSummary[]): KernelSummary | undefined =>
  [...kernels].sort(
    (a, b) => Math.abs(b.predictedSeconds - b.measuredSeconds) - Math.abs(a.predictedSeconds - a.measuredSeconds),
  )[0];

function kindsThatDiffer(m: MemoryReport): string {
  const counts = new Map<string, number>();
  for (const row of m.mismatches)
    for (const k of row.kinds)
      if (k.allocatedBytes !== k.predictedBytes) counts.set(k.kind, (counts.get(k.kind) ?? 0) + 1);
  return [...counts].map(([kind, count]) => `${kind} in ${count}`).join(', ');
}
