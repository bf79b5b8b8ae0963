/**
 * Prices the steps of earlier runs of `validate --only latency --format json` again, from the calibrations that they
 * ran with: what a change of the cost model would have done to them. Kernels are fitted again; nothing is measured.
 * Usage: reprice-steps CALIBRATION VALIDATION [CALIBRATION VALIDATION …]
 */
import { readFileSync } from 'node:fs';
import { fitPredictor } from '../src/cost/fit/fit.js';
import { priceStep } from '../src/cost/latency.js';
import { calibrationPricer } from '../src/cost/pricers.js';
import type { KernelName } from '../kernels/registry.js';
import { calibrationSchema } from '../src/schema/calibration.js';
import { readCalibration } from '../src/schema/drift.js';
import { median, quantile } from '../src/numbers/statistics.js';
import { validationModel } from '../src/bench/calibrate/lists.js';
import { stepGrid } from '../src/validate/grid.js';
import { pricerFor } from '../src/validate/latency.js';
import type { ValidationReport } from '../src/validate/report.js';

const percent = (x: number): string => `${(100 * x).toFixed(1)} %`;
const read = (path: string): unknown => JSON.parse(readFileSync(path, 'utf8'));

const paths = process.argv.slice(2);
for (let i = 0; i + 1 < paths.length; i += 2) {
  const calibration = readCalibration(calibrationSchema.parse(read(paths[i]!)));
  const { seed, latency } = read(paths[i + 1]!) as ValidationReport;
  for (const { kernel, samples, predictors } of calibration.kernels)
    for (const variant of Object.keys(predictors))
      predictors[variant] = fitPredictor(kernel as KernelName, variant, samples);
  const pricer = pricerFor(
    { clock: calibration.clock.kind },
    calibrationPricer(calibration, { stale: new Set(), link: null, source: paths[i]! }),
  );
  const bindingBytes = calibration.device.limits['maxStorageBufferBindingSize']!;
  const { software } = calibration.device;
  const grid = stepGrid({ geometry: validationModel(software, null), software, quick: false, seed, bindingBytes });
  const steps = (latency?.steps ?? []).flatMap(({ id, batch, contextTokens, measuredSeconds, predicted }) => {
    const of = grid.find((s) => s.id === id && s.batch === batch && s.contextTokens === contextTokens);
    if (!of) return [];
    const { estimate, low, high } = priceStep(of.c, pricer, batch, contextTokens);
    const error = (seconds: number): number => seconds / measuredSeconds - 1;
    console.log(
      `  ${id}, ${batch} × ${contextTokens}: ${percent(error(estimate))} (${percent(error(low))} to ` +
        `${percent(error(high))}), was ${percent(error(predicted.estimate))}`,
    );
    return [
      {
        error: Math.abs(error(estimate)),
        inside: low <= measuredSeconds && measuredSeconds <= high,
        width: Math.sqrt(high / low) - 1,
      },
    ];
  });
  const errors = steps.map((s) => s.error);
  const inside = steps.filter((s) => s.inside).length / steps.length;
  console.log(
    `${paths[i + 1]}: ${steps.length} steps, median error ${percent(median(errors))}, 90th percentile ` +
      `${percent(quantile(errors, 0.9))}, inside ${percent(inside)}, median width ± ` +
      percent(median(steps.map((s) => s.width))),
  );
}
