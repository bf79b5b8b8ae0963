/** From a calibration to the report's page: the planner with the numbers of this machine. */
import { presetSource, type Sources } from '../plan/ask/prepare.js';
import { describeCalibration, measuredDevice } from '../plan/ask/measured.js';
import { staleKernels } from '../plan/ask/stale.js';
import { pageSources, type KnownStacks, type PageData } from '../report/page-data.js';
import type { Calibration } from '../schema/calibration.js';
import type { Scenario } from '../schema/settings.js';

/** Context of the first answer. */
const CONTEXT = 4096;

/**
 * @param file name of the calibration, as the page offers it
 * @param vramBytes what the reader says of the GPU's memory, or null
 * @throws UserError where nobody says how much memory the GPU has
 */
export function planningOf(
  calibration: Calibration,
  file: string,
  vramBytes: number | null,
  files: KnownStacks['files'],
): PageData {
  const { device, spec } = measuredDevice({ file, calibration }, vramBytes);
  const sources: Sources = {
    model: presetSource('ouro-1.4b'),
    device: { ...device, calibration: describeCalibration({ file, calibration }) },
    spec,
    calibration: { file, content: calibration, stale: staleKernels(calibration) },
    gpu: null,
    stack: 'lla-sim',
    notes: [],
    stackNotes: [],
  };
  const scenario: Scenario = {
    calibration: file,
    context: CONTEXT,
    ...(vramBytes === null ? {} : { vram: vramBytes }),
  };
  return {
    scenario,
    sources: pageSources(sources),
    validation: null,
    known: { tables: [], files },
  };
}
