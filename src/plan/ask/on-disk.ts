/**
 * From a scenario to a report on a machine: reads the files that it names, then plans (prepare.ts). Readers of files
 * that few questions name are loaded when they are needed.
 */
import type { Scenario } from '../../schema/settings.js';
import { answer, type ModelSource, type Sources } from './prepare.js';
import { findCalibration, loadCalibration, type LoadedCalibration } from './calibrations.js';
import type { Rows } from '../plan.js';
import { modelFrom, sourcesFrom, type Shelf } from './sources.js';
import { tablesOnDisk } from './stacks.js';
import type { PlanReport } from '../types.js';

/** Reads a scenario and plans it. Files are read relative to the working directory. */
export async function ask(scenario: Scenario, rows: Rows = {}): Promise<PlanReport> {
  return answer(scenario, await readSources(scenario), rows);
}

/**
 * Reads what a scenario names: its model, its device, what was measured there.
 * @param given the model, where the scenario names none that can be read
 * @throws UserError for what cannot be read
 */
export const readSources = (scenario: Scenario, given: ModelSource | null = null): Promise<Sources> =>
  sourcesFrom(onDisk, scenario, given);

/** A preset by name, or a model file by path. */
export const readModel = (name: string, loops?: string | number): Promise<ModelSource> =>
  modelFrom(onDisk, name, loops);

/** What lies on this machine. */
export const onDisk: Shelf = {
  ...tablesOnDisk,
  async model(path) {
    const { readModelFile } = await import('../../geometry/model-file.js');
    return { geometry: readModelFile(path), publishedAs: null };
  },
  async fidelity(path, model) {
    const { readFidelityOf } = await import('./read-fidelity.js');
    return readFidelityOf(path, model.path, model.name);
  },
  calibration: (path) => loadCalibration(path),
  calibrationOf: findCalibration,
  stale: async (calibration) => (await import('./stale.js')).staleKernels(calibration),
};

/** Kernels of a calibration whose times are not used (stale.ts). */
export const staleKernels = ({ calibration }: LoadedCalibration): Promise<readonly string[]> =>
  onDisk.stale(calibration);
