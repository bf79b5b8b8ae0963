/** Compares what a validation found with its tolerances. */
import { CAPACITY_TOLERANCE, capacityHolds } from './memory/capacity.js';
import { LOGIT_TOLERANCE } from './memory/correctness.js';
import type { StepRow } from './latency.js';
import { SERVING_TOLERANCES, type ServingRow } from './serving.js';
import { best } from '../numbers/best.js';
import { median, sum } from '../numbers/statistics.js';
import { summarise, type ErrorSummary } from './statistics.js';
import { overheadOf, percent, signed, type Check, type ValidationReport } from './report.js';

/** Shortest context at which the decoder's overhead is judged. */
const OVERHEAD_CONTEXT = 1024;
const OVERHEAD_TOLERANCE = 0.1;
export const TOLERANCES = { software: { median: 0.06, p90: 0.15 }, hardware: { median: 0.04, p90: null } } as const;
const COVERAGE = [0.85, 0.97] as const;
/** Of a step's interval: the median half-width, and the widest factor either way inside the measured range. */
const WIDTHS = { median: 0.25, worst: 3 } as const;

/** What was found; nothing where there was nothing to check. */
type Found = { readonly ok: boolean; readonly text: string } | null | undefined;

const check = (name: Check['name'], strict: boolean, tolerance: string, found: Found): Check => ({
  name,
  strict,
  tolerance,
  status: !found ? 'not-checked' : found.ok ? 'holds' : 'failed',
  found: found?.text ?? '–',
});

interface Judged extends Pick<ValidationReport, 'quick' | 'correctness' | 'memory' | 'capacity'> {
  readonly software: boolean;
  readonly steps: readonly StepRow[] | null;
}

/**
 * Compares the findings with the tolerances. Times of `quick` are reported and never strict: it runs on noisy machines.
 */
export function judge({ software, quick, correctness, memory, steps, capacity }: Judged): Check[] {
  const strict = !quick;
  const worst = best(correctness?.rows ?? [], (r) => r.error / r.tolerance);
  const summary = steps ? summarise(steps) : null;
  const limits = software ? TOLERANCES.software : TOLERANCES.hardware;
  const overheads = (steps ?? []).filter((s) => s.contextTokens >= OVERHEAD_CONTEXT).map(overheadOf);
  const atMost = (name: Check['name'], limit: number, error: number | undefined): Check => {
    const found = error === undefined ? null : { ok: error <= limit, text: percent(error) };
    return check(name, strict, `at most ${percent(limit)}`, found);
  };
  const wrong = capacity?.rows.filter((r) => !capacityHolds(r)) ?? [];
  return [
    check(
      'correctness',
      true,
      `logits within ${LOGIT_TOLERANCE.f32} (rounded twice ${LOGIT_TOLERANCE.rounded})`,
      worst && {
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
    atMost('step-median-error', limits.median, summary?.medianError),
    ...(limits.p90 === null ? [] : [atMost('step-p90-error', limits.p90, summary?.p90Error)]),
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
            ok: median(overheads) <= OVERHEAD_TOLERANCE,
            text: `${percent(median(overheads))}, at worst ${percent(Math.max(...overheads))}`,
          },
    ),
  ];
}

/** Half-widths of the steps' intervals: a covered time inside a useless interval is no prediction. */
function widthsOf(steps: readonly StepRow[] | null): Found {
  if (!steps || steps.length === 0) return null;
  const half = median(steps.map(({ predicted: { low, high } }) => Math.sqrt(high / low) - 1));
  const worst = Math.max(
    1,
    ...steps
      .filter((s) => s.octavesOutside === 0)
      .map(({ predicted: { estimate, low, high } }) => Math.max(high / estimate, estimate / low)),
  );
  return {
    ok: half <= WIDTHS.median && worst <= WIDTHS.worst,
    text: `± ${percent(half)}, at worst ${worst.toFixed(2)}× inside the measured range`,
  };
}

type JudgedRow = Pick<ServingRow, 'meanTpotSeconds' | 'p90E2elSeconds' | 'pairs' | 'inverted' | 'replay'>;

/** The serving loop against the simulation: the worst of the rows. */
export function servingChecks(rows: readonly JudgedRow[], strict: boolean): Check[] {
  const worst = (
    name: Check['name'],
    most: number,
    of: (row: JudgedRow) => { measured: number; simulated: number },
  ): Check => {
    const errors = rows.map(of).map(({ measured, simulated }) => simulated / measured - 1);
    const error = best(errors, Math.abs);
    const found = error === undefined ? null : { ok: Math.abs(error) <= most, text: `${signed(error)} at worst` };
    return check(name, strict, `within ${percent(most)}`, found);
  };
  const pairs = sum(rows.map((row) => row.pairs + row.replay.pairs));
  const inverted = sum(rows.map((row) => row.inverted + row.replay.inverted));
  const found = rows.length === 0 ? null : { ok: inverted === 0, text: '' };
  const order = check('serving-order', strict, 'equal where the schedule decides it', found);
  return [
    worst('serving-tpot', SERVING_TOLERANCES.tpot, (r) => r.meanTpotSeconds),
    worst('serving-e2el', SERVING_TOLERANCES.e2el, (r) => r.p90E2elSeconds),
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
