/**
 * From a scenario to a report: reads the model, the device and the measurements that it names, then plans (answer.ts).
 */
import { UserError } from '../errors.js';
import { memoryOf, type DeviceSpec } from '../devices/catalogue.js';
import { deviceOfAdapter, devicesByVram, findDevice } from '../devices/find.js';
import { LIMITS } from '../geometry/config.js';
import { isPreset, withLoops } from '../geometry/presets.js';
import { isPath, type Scenario } from '../schema/settings.js';
import { formatDecimalBytes, parseNumber } from '../units.js';
import type { Rows } from './plan.js';
import { answer, presetSource, readVram, type ModelSource, type Sources } from './answer.js';
import { findCalibration, loadCalibration, type LoadedCalibration } from './calibrations.js';
import type { Fidelity } from './fidelity.js';
import { describeCalibration, measuredDevice } from './measured.js';
import { chooseStack, judgedGroups, otherStacksOn, tunedSources } from './stacks.js';
import type { DeviceChoice, PlanReport } from './types.js';

const DEFAULT_MODEL = 'ouro-1.4b';

/** Reads a scenario and plans it. Files are read relative to the working directory. */
export async function ask(scenario: Scenario, rows: Rows = {}): Promise<PlanReport> {
  return answer(scenario, await readSources(scenario), rows);
}

/**
 * Reads what a scenario names: its model, its device, what was measured there.
 * @param given the model, where the scenario names none that can be read
 * @throws UserError for what cannot be read
 */
export async function readSources(scenario: Scenario, given: ModelSource | null = null): Promise<Sources> {
  const notes: string[] = [];
  const stackNotes: string[] = [];
  const model = given
    ? withChosenLoops(given, scenario.loops)
    : await readModel(scenario.model ?? DEFAULT_MODEL, scenario.loops);
  const fidelity = await readMeasured(scenario);
  const { device, spec, loaded } = await chooseDevice(scenario, notes);
  const chosen =
    spec && !(scenario.calibration !== undefined && scenario.stack === undefined)
      ? await chooseStack(scenario.stack, spec, model.publishedAs, loaded?.file ?? null, stackNotes)
      : null;
  if (!spec && scenario.stack !== undefined && scenario.stack !== 'lla-sim')
    throw new UserError('--stack needs a device of the catalogue', 'name it with --device');
  const used = chosen?.gpu ? null : loaded;
  return {
    model,
    device: { ...device, calibration: describeCalibration(used) },
    spec,
    calibration: used && { file: used.file, content: used.calibration, stale: await staleKernels(used) },
    gpu: chosen?.gpu ?? null,
    ...(spec && chosen?.gpu ? { otherStacks: otherStacksOn(spec, chosen.gpu) } : {}),
    ...(used && spec ? { attainable: tunedSources(spec) } : {}),
    stack: chosen?.stack ?? (loaded ? 'lla-sim' : null),
    ...(fidelity ? { fidelity } : {}),
    judged: judgedGroups(),
    notes,
    stackNotes,
  };
}

const isFile = (name: string): boolean => isPath(name) && !isPreset(name);

/** What `lla-sim fidelity` measured of the model of a scenario; null where no file is named. */
async function readMeasured({ fidelity, model = DEFAULT_MODEL }: Scenario): Promise<Fidelity | null> {
  if (fidelity === undefined) return null;
  const { readFidelityOf } = await import('./read-fidelity.js');
  return readFidelityOf(fidelity, isFile(model) ? model : null, model);
}

/**
 * A preset by name, or a model file by path. Published quality belongs to presets only, and to the loops that they were
 * trained with.
 * @param loops other loops than these; where the model leaves them open
 */
export async function readModel(name: string, loops?: string | number): Promise<ModelSource> {
  return withChosenLoops(isFile(name) ? await modelFile(name) : presetSource(name), loops);
}

function withChosenLoops(source: ModelSource, loops: Scenario['loops']): ModelSource {
  if (loops === undefined) return source;
  const geometry = withLoops(
    source.geometry,
    parseNumber(String(loops), '--loops', { min: 1, max: LIMITS.loops, whole: true }),
  );
  return geometry === source.geometry ? source : { geometry, publishedAs: null };
}

async function modelFile(path: string): Promise<ModelSource> {
  const { readModelFile } = await import('../geometry/model-file.js');
  return { geometry: readModelFile(path), publishedAs: null };
}

interface Chosen {
  device: DeviceChoice;
  spec: DeviceSpec | null;
  loaded: LoadedCalibration | null;
}

/** The device: named, or measured (--calibration), or the one whose memory --vram states. */
async function chooseDevice(s: Scenario, notes: string[]): Promise<Chosen> {
  const vram = s.vram === undefined ? null : readVram(String(s.vram));
  if (s.calibration !== undefined) {
    const loaded = await loadCalibration(s.calibration);
    return { ...measuredDevice(loaded, vram, s.device), loaded };
  }
  if (s.device === undefined && vram === null)
    throw new UserError(
      'the memory of the GPU is not given',
      'add --vram 141GB, or --device h200 (lla-sim models --devices lists them)',
    );
  const spec = s.device === undefined ? byMemory(vram as number, notes) : findDevice(s.device);
  const vramBytes = vram ?? memoryOf(spec as DeviceSpec);
  if (!spec)
    return {
      device: { id: null, name: `${formatDecimalBytes(vramBytes)} GPU`, vramBytes, calibration: null },
      spec,
      loaded: null,
    };
  const loaded = await findCalibration((description) => deviceOfAdapter(description)?.id === spec.id, notes);
  return {
    device: { id: spec.id, name: spec.name, vramBytes, calibration: describeCalibration(loaded) },
    spec,
    loaded,
  };
}

/** The catalogue's device with this much memory; the first by the stated order where several match. */
function byMemory(vram: number, notes: string[]): DeviceSpec | null {
  const [first, ...others] = devicesByVram(vram);
  if (!first) {
    notes.push(
      `no device of the catalogue has ${formatDecimalBytes(vram)}: memory is planned, time is not; name a device with --device to add it`,
    );
    return null;
  }
  notes.push(
    others.length === 0
      ? `${formatDecimalBytes(vram)} is taken for ${first.name}`
      : `${formatDecimalBytes(vram)} is taken for ${first.name} (nearest in memory, then fastest memory); ${others.map((d) => d.id).join(', ')} match too: choose with --device`,
  );
  return first;
}

/** Kernels of a calibration whose times are not used (stale.ts). */
export const staleKernels = async ({ calibration }: LoadedCalibration): Promise<string[]> =>
  (await import('./stale.js')).staleKernels(calibration);
