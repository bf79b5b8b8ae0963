/** A validation in a few sentences. */
import { groups as groupBy } from 'd3-array';
import { differing, type MemoryReport } from './memory/memory.js';
import { best } from '../numbers/best.js';
import { median, quantile } from '../numbers/statistics.js';
import { summarise } from './statistics.js';
import { percent, type ValidationReport } from './report.js';
import { present } from '../present.js';

/** One paragraph that a reader can act on. */
export function verdict(r: ValidationReport): string[] {
  const failed = r.checks.filter((c) => c.status === 'failed');
  const open = r.checks.filter((c) => c.status === 'not-checked');
  const trust =
    failed.length > 0
      ? `Do not trust without a second look: outside tolerance ${failed.length === 1 ? 'is' : 'are'} ` +
        `${failed.map((c) => `${c.name} (${c.found}, wanted ${c.tolerance})`).join('; ')}.`
      : open.length > 0
        ? `Nothing that was checked is outside its tolerance; not checked: ${open.map((c) => c.name).join(', ')}.`
        : 'Trust the predictions on this device within the errors below: every tolerance holds.';
  const stale = r.calibration?.stale ?? [];
  return present([
    trust,
    ...(r.memory ? memoryVerdict(r.memory) : []),
    ...(r.latency ? latencyVerdict(r.latency) : []),
    stale.length > 0 &&
      `The calibration is stale for ${stale.join(', ')}: those are priced by roofline, ` +
        'so that step errors say little about the model. Measure again with lla-sim calibrate.',
  ]);
}

function memoryVerdict({ rows, mismatches, notRun }: MemoryReport): string[] {
  const kinds = groupBy(mismatches.flatMap(differing), ({ kind }) => kind);
  return present([
    mismatches.length === 0
      ? `Memory is exact in all ${rows.length} configurations.`
      : `Memory differs from what is allocated in ${mismatches.length} of ${rows.length} configurations: ` +
        `${kinds.map(([kind, all]) => `${kind} in ${all.length}`).join(', ')}.`,
    notRun.length > 0 && `${notRun.length} configurations are not executed by the decoder and were not checked.`,
  ]);
}

type Latency = NonNullable<ValidationReport['latency']>;

function latencyVerdict(latency: Latency): string[] {
  const { summary, kernels, steps } = latency;
  // The kernel whose error adds most seconds.
  const worst = best(kernels, ({ predictedSeconds: p, measuredSeconds: m }) => Math.abs(p - m));
  const drifted = steps.flatMap((s) => s.drift);
  return present([
    summary &&
      worst &&
      `Step times are ${percent(Math.abs(summary.bias))} too ` +
        `${summary.bias > 0 ? 'long' : 'short'} in the median. Most of the error comes from ` +
        `${worst.kernel}: ${percent(Math.abs(worst.predictedSeconds / worst.measuredSeconds - 1))} too ` +
        `${worst.predictedSeconds > worst.measuredSeconds ? 'long' : 'short'}, ${percent(worst.share)} ` +
        'of the time.',
    drifted.length > 0 &&
      `While steps were measured the machine ran at ${(1 / median(drifted)).toFixed(2)} times ` +
        `its speed at calibration (${(1 / quantile(drifted, 0.95)).toFixed(2)} to ` +
        `${(1 / quantile(drifted, 0.05)).toFixed(2)}); times are corrected for it.`,
    ...(drifted.length > 0 ? controlsVerdict(latency) : []),
  ]);
}

/** How the calibration's own points, measured again, changed the error. */
function controlsVerdict({ controls, steps }: Latency): string[] {
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
