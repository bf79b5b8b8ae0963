/** Data with which a report's page plans by itself: the scenario and its sources, as plain data. */
import { measuredPoints } from '../cost/predictor.js';
import type { PricedCalibration, Sources } from '../plan/ask/prepare.js';
import { type KernelName, TERMS_VERSION } from '../../kernels/registry.js';
import type { Sample } from '../schema/calibration.js';
import type { Scenario } from '../schema/settings.js';
import type { KnownFiles } from '../stacks/choose.js';
import type { StackTables } from '../stacks/serving.js';
import type { Simulated } from './simulation.js';
import type { Validation } from '../schema/validation.js';

export interface PageData {
  readonly scenario: Scenario;
  /** What gives the same report, where flags of `plan` alone do not. */
  readonly command?: string;
  readonly sources: Sources;
  readonly validation: Validation | null;
  readonly known: KnownStacks;
  /** Only of a scenario with a workload. */
  readonly simulated?: Simulated;
}

/** What the page needs to plan for other devices and stacks. */
export interface KnownStacks {
  /** Beside those of the report's own sources. */
  readonly tables: readonly StackTables[];
  readonly files: KnownFiles;
}

/** Without the tables that the report's sources carry already. */
export const withoutOwn = (known: KnownStacks, { gpu }: Sources): KnownStacks => ({
  ...known,
  tables: known.tables.filter(
    ({ file: { device, stack } }) => gpu?.stack?.file.device !== device || gpu.stack.file.stack !== stack,
  ),
});

/**
 * Sources reduced to the data that pricing reads. Of each measured shape the typical time is kept, which is all that
 * predictors use (cost/predictor.ts), so the page prices exactly as the program does. Nothing of the host goes into a
 * report.
 */
export function pageSources(sources: Sources): Sources {
  const { calibration } = sources;
  return {
    ...sources,
    calibration: calibration && {
      ...calibration,
      content: slimCalibration(calibration.content, new Set(calibration.stale)),
    },
  };
}

function slimCalibration(c: PricedCalibration, stale: ReadonlySet<string>): PricedCalibration {
  const binding = c.device.limits['maxStorageBufferBindingSize'];
  return {
    device: {
      description: c.device.description,
      software: c.device.software,
      limits: binding === undefined ? {} : { maxStorageBufferBindingSize: binding },
    },
    ...(c.host?.browser ? { host: { browser: c.host.browser } } : {}),
    overheads: c.overheads,
    ceilings: c.ceilings,
    kernels: c.kernels.map((k) => {
      const readable =
        !stale.has(k.kernel) || Object.values(k.predictors).every((p) => p.modelVersion === TERMS_VERSION);
      return {
        kernel: k.kernel,
        predictors: stale.has(k.kernel) ? {} : k.predictors,
        samples: readable ? medians(k.kernel as KernelName, k.samples) : k.samples,
      };
    }),
  };
}

/** One sample a distinct shape and variant, holding the typical time. */
function medians(kernel: KernelName, samples: readonly Sample[]): Sample[] {
  return [...new Set(samples.map((s) => s.variant))].flatMap((variant) =>
    measuredPoints(kernel, variant, samples).map((p): Sample => {
      const { drift: _drift, ...first } = samples[p.sampleIndices[0] as number] as Sample;
      return { ...first, seconds: [p.seconds] };
    }),
  );
}

/**
 * JSON that is safe inside a script element: nothing in it can end the element, start a comment or turn the direction
 * of text.
 */
export const scriptJson = (value: unknown): string =>
  JSON.stringify(value).replace(
    /[<>&\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
