/**
 * What a scenario rests on: its model, its device, what was measured there. By one rule wherever files come from: from
 * folders on a machine (on-disk.ts), or from what a page carries.
 */
import { chipOf, memoryOf, type DeviceSpec } from '../../devices/catalogue.js';
import { deviceOfAdapter, devicesByVram, findDevice } from '../../devices/find.js';
import { UserError, show } from '../../errors.js';
import { LIMITS } from '../../geometry/config.js';
import { withFloat8 } from '../../geometry/geometry.js';
import { isBundled, isPreset, withLoops } from '../../geometry/presets.js';
import type { Calibration } from '../../schema/calibration.js';
import { isPath, type Scenario } from '../../schema/settings.js';
import {
  decideStack,
  gpuSources,
  kernelsAlone,
  unservedNote,
  otherCardNotes,
  type KnownFiles,
} from '../../stacks/choose.js';
import type { GpuSources } from '../../stacks/gpu-pricer.js';
import { listedAs, STACKS, type StackTables } from '../../stacks/serving.js';
import { formatDecimalBytes, parseNumber } from '../../numbers/units.js';
import { presetSource, readVram, type ModelSource, type Sources } from './prepare.js';
import type { Fidelity } from '../evaluate/fidelity.js';
import { describeCalibration, measuredDevice, type NamedCalibration } from './measured.js';
import type { JudgedGroup } from './tested.js';
import type { DeviceChoice } from '../types.js';

const DEFAULT_MODEL = 'ouro-1.4b';

/** Where files are. What is not there is a UserError, unless null may be returned. */
export interface Shelf {
  /** A model by the path of its config.json. */
  model(path: string): Promise<ModelSource>;
  /** What `lla-sim fidelity` measured of a model, which is a file or a preset. */
  fidelity(path: string, model: { readonly path: string | null; readonly name: string }): Promise<Fidelity>;
  /** A calibration by its path. */
  calibration(path: string): Promise<NamedCalibration>;
  /** That of a device by its adapter's description, which nobody named. */
  calibrationOf(matches: (description: string) => boolean, notes: string[]): Promise<NamedCalibration | null>;
  /** Kernels of a calibration that have changed since (stale.ts). */
  stale(calibration: Calibration): Promise<readonly string[]>;
  /** A stack file by its path. */
  stackFile(path: string): Promise<StackTables>;
  has(device: string, stack: string): boolean;
  tables(device: string, stack: string): Promise<StackTables | null>;
  /** Brings the program's own tables of a device to where `bundled` finds them. */
  open(device: string): Promise<void>;
  bundled(device: string, stack: string): StackTables | null;
  files(): KnownFiles;
  judged(): readonly JudgedGroup[];
}

/**
 * @param given the model, where the scenario names none that can be read
 * @throws UserError for what cannot be read
 */
export async function sourcesFrom(shelf: Shelf, scenario: Scenario, given: ModelSource | null): Promise<Sources> {
  const notes: string[] = [];
  const stackNotes: string[] = [];
  const named = scenario.model ?? DEFAULT_MODEL;
  const model = withWeights(
    given ? withChosenLoops(given, scenario.loops) : await modelFrom(shelf, named, scenario.loops),
    scenario.weightType,
  );
  const fidelity =
    scenario.fidelity === undefined
      ? null
      : await shelf.fidelity(scenario.fidelity, { path: isModelFile(named) ? named : null, name: named });
  const { device, spec, loaded } = await chooseDevice(shelf, scenario, notes);
  const chosen =
    spec && !(scenario.calibration !== undefined && scenario.stack === undefined)
      ? await chooseStack(shelf, scenario.stack, spec, listedAs(model), loaded?.file ?? null, stackNotes)
      : null;
  if (!spec && scenario.stack !== undefined && scenario.stack !== 'lla-sim')
    throw new UserError('--stack needs a device of the catalogue', 'name it with --device');
  const gpu = chosen?.gpu ?? null;
  const used = gpu ? null : loaded;
  if (gpu && model.geometry.weightType === 'f32')
    notes.push('weights are stored in 32 bits; servers load them in 16 (--dtype auto), and so they are counted');
  return {
    model: gpu ? asServed(model) : model,
    device: { ...device, calibration: describeCalibration(used) },
    spec,
    calibration: used && { file: used.file, content: used.calibration, stale: await shelf.stale(used.calibration) },
    gpu,
    ...(spec && gpu ? { otherStacks: () => otherStacksOn(shelf, spec, gpu) } : {}),
    ...(used && spec ? { attainable: tunedOn(shelf, spec) } : {}),
    stack: chosen?.stack ?? (loaded ? 'lla-sim' : null),
    ...(fidelity ? { fidelity } : {}),
    judged: shelf.judged(),
    notes,
    stackNotes,
  };
}

/** True where a model is a file's, not a preset: by its path, or bundled. */
export const isModelFile = (name: string): boolean => isBundled(name) || (isPath(name) && !isPreset(name));

/**
 * A preset by name, or a model file by path. Published quality belongs to presets only, and to the loops that they were
 * trained with.
 * @param loops other loops than these; where the model leaves them open
 */
export async function modelFrom(
  shelf: Pick<Shelf, 'model'>,
  name: string,
  loops?: Scenario['loops'],
): Promise<ModelSource> {
  return withChosenLoops(isModelFile(name) ? await shelf.model(name) : presetSource(name), loops);
}

/** A model with so many loops, where they are said. @throws UserError where its file or class fixes the number */
export function withChosenLoops(source: ModelSource, loops: Scenario['loops']): ModelSource {
  if (loops === undefined) return source;
  const geometry = withLoops(
    source.geometry,
    parseNumber(String(loops), '--loops', { min: 1, max: LIMITS.loops, whole: true }),
  );
  return geometry === source.geometry ? source : { geometry, publishedAs: null };
}

/** A model with weights of the asked type. @throws UserError where the file's weights are quantised already */
export function withWeights(source: ModelSource, asked: Scenario['weightType']): ModelSource {
  if (asked === undefined) return source;
  const { geometry } = source;
  if (asked !== 'fp8') throw new UserError(`--weight-type must be fp8, not ${show(asked)}`, 'write --weight-type fp8');
  if (geometry.quantised)
    throw new UserError(
      `${geometry.name} has weights in ${geometry.quantised.name} already: --weight-type quantises those in 16 bits`,
      'leave --weight-type out',
    );
  return { ...source, geometry: withFloat8(geometry) };
}

/** Servers' kernels read weights in 16 bits. */
const asServed = (source: ModelSource): ModelSource =>
  source.geometry.weightType === 'f32' ? { ...source, geometry: { ...source.geometry, weightType: 'bf16' } } : source;

interface ChosenDevice {
  device: DeviceChoice;
  spec: DeviceSpec | null;
  loaded: NamedCalibration | null;
}

/** The device: named, or measured (--calibration), or the one whose memory --vram states. */
async function chooseDevice(shelf: Shelf, s: Scenario, notes: string[]): Promise<ChosenDevice> {
  const vram = s.vram === undefined ? null : readVram(String(s.vram));
  if (s.calibration !== undefined) {
    const loaded = await shelf.calibration(s.calibration);
    return { ...measuredDevice(loaded, vram, s.device), loaded };
  }
  if (s.device === undefined && vram === null)
    throw new UserError(
      'the memory of the GPU is not given',
      'add --vram 141GB, or --device h200 (lla-sim models --devices lists them)',
    );
  const spec = s.device === undefined ? byMemory(vram as number, notes) : findDevice(s.device);
  const vramBytes = vram ?? memoryOf(spec as DeviceSpec);
  const { id, name } = spec ?? { id: null, name: `${formatDecimalBytes(vramBytes)} GPU` };
  const isIts = (description: string): boolean => deviceOfAdapter(description)?.id === id;
  const loaded = spec && (await shelf.calibrationOf(isIts, notes));
  return { device: { id, name, vramBytes, calibration: describeCalibration(loaded) }, spec, loaded };
}

/** The catalogue's device with this much memory; the first by the stated order where several match. */
function byMemory(vram: number, notes: string[]): DeviceSpec | null {
  const [first, ...others] = devicesByVram(vram);
  if (!first) {
    notes.push(
      `no device of the catalogue has ${formatDecimalBytes(vram)}: memory is planned without what a server keeps for ` +
        'itself, time is not; name a device with --device to add it',
    );
    return null;
  }
  notes.push(
    others.length === 0
      ? `${formatDecimalBytes(vram)} is taken for ${first.name}`
      : `${formatDecimalBytes(vram)} is taken for ${first.name} (nearest in memory, then fastest memory); ` +
          `${others.map((d) => d.id).join(', ')} match too: choose with --device`,
  );
  return first;
}

/** Whose kernels price a plan. */
interface ChosenStack {
  /** As asked with `--stack`, or chosen: a stack's name, `lla-sim` or `attainable`. */
  readonly stack: string;
  /** Null for `lla-sim`: then the calibration prices. */
  readonly gpu: GpuSources | null;
}

/**
 * Chooses by `decideStack` and reads the tables.
 * @param asked `--stack`: a name, or the path of a stack file
 * @param model the name under which stacks list the model; null where it is not a preset
 * @param calibrated a calibration of this device that was found, by file name
 * @param notes takes the sentences that a reader needs about the choice
 */
async function chooseStack(
  shelf: Shelf,
  asked: string | undefined,
  spec: DeviceSpec,
  model: string | null,
  calibrated: string | null,
  notes: string[],
): Promise<ChosenStack> {
  const gpu = (tables: StackTables | null, undivided = false): GpuSources =>
    gpuSources(spec, tables, shelf.files(), asked, undivided);
  const chip = chipOf(spec);
  await shelf.open(chip);
  const from = (stack: string): string => (shelf.has(spec.id, stack) ? spec.id : chip);
  if (asked !== undefined && isPath(asked)) {
    const tables = await shelf.stackFile(asked);
    if (![spec.id, chip].includes(tables.file.device))
      throw new UserError(
        `${show(asked)} holds times of ${tables.file.device}, not of ${spec.id}`,
        `leave --stack out, or plan for --device ${tables.file.device}`,
      );
    notes.push(...otherCardNotes(spec, tables));
    return { stack: tables.file.stack, gpu: gpu(tables) };
  }
  const decided = decideStack(asked, spec, model, calibrated, (stack) => shelf.has(from(stack), stack));
  notes.push(...decided.notes);
  if (decided.stack === 'lla-sim') return { stack: decided.stack, gpu: null };
  const tables = decided.tables === null ? null : await shelf.tables(from(decided.tables), decided.tables);
  if (tables) notes.push(...otherCardNotes(spec, tables));
  if (decided.unserved && tables) notes.push(unservedNote(model, tables));
  return { stack: decided.stack, gpu: gpu(tables, decided.undivided) };
}

/** Tables of the other stacks on a device. @param chosen whose tables price */
export const otherStacksOn = (
  shelf: Pick<Shelf, 'bundled' | 'files'>,
  spec: DeviceSpec,
  chosen: GpuSources,
): readonly GpuSources[] =>
  STACKS.filter((stack) => stack !== chosen.stack?.file.stack).flatMap((stack) => {
    const tables = shelf.bundled(spec.id, stack) ?? shelf.bundled(chipOf(spec), stack);
    return tables ? [gpuSources(spec, tables, shelf.files())] : [];
  });

/** What tuned kernels reach on a device, without a server: shown beside times of a calibration. */
export const tunedOn = (shelf: Pick<Shelf, 'files'>, spec: DeviceSpec): GpuSources =>
  kernelsAlone(gpuSources(spec, null, shelf.files()));
