/** A validation in a few sentences. */
import { groups as groupBy } from 'd3-array';
import { differing, type MemoryReport } from './memory/memory.js';
import { best } from '../numbers/best.js';
import { median, quantile } from '../numbers/statistics.js';
import { summarise } from './statistics.js';
import { percent, type KernelSummary, type ValidationReport } from './report.js';

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
      `While steps were measured the machine ran at ${(1 / median(drifted)).toFixed(2)} times ` +
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
  const drift = median(steps.map((s) => s.kernelDrift));
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
  best(kernels, ({ predictedSeconds, measuredSeconds }) => Math.abs(predictedSeconds - measuredSeconds));

function kindsThatDiffer(m: MemoryReport): string {
  const kinds = groupBy(m.mismatches.flatMap(differing), ({ kind }) => kind);
  return kinds.map(([kind, all]) => `${kind} in ${all.length}`).join(', ');
}
