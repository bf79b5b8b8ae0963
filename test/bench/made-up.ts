/** What tests of timing make up: steps that are names, and tracks of a calibration in which nothing is measured. */
import type { KernelName } from '../../kernels/registry.js';
import type { Track } from '../../src/bench/calibrate/visits.js';
import type { BoundStep } from '../../src/gpu/index.js';

export const stepNamed = (name: string): BoundStep => ({ name }) as unknown as BoundStep;
export const nameOf = (step: BoundStep): string => (step as unknown as { name: string }).name;

export const trackOf = (kernel: KernelName, variant: string, candidates: Track['candidates'] = []): Track => ({
  kernel,
  variant,
  entry: { kernel, sourceHash: 'x', samples: [], gaps: [], predictors: {} },
  ...{ candidates, later: [], resumed: [], visitSeconds: [] },
});
