/** From a scenario to a report: reads the model, the device and the measurements that it names, then plans. */
import { printable, UserError, show } from '../errors.js';
import type { Geometry } from '../geometry/geometry.js';
import { findPreset } from '../geometry/presets.js';
import type { DeviceSpec } from '../devices/catalogue.js';
import { deviceOfAdapter, devicesByVram, findDevice } from '../devices/find.js';
import { calibrationPricer, datasheetPricer, importedPricer, type Predictors } from '../cost/pricers.js';
import type { Pricer } from '../cost/latency.js';
import { TERMS_VERSION, type KernelName } from '../schedule/kernels.js';
import type { Scenario } from '../schema/settings.js';
import { formatDecimalBytes, parseBytes } from '../units.js';
import { findCalibration, loadCalibration, type LoadedCalibration } from './calibrations.js';
import { listCandidates } from './candidates.js';
import { makePlan } from './plan.js';
import { readQuestion } from './request.js';
import type { DeviceChoice, PlanReport } from './types.js';

/** Reads a scenario and plans it. Files are read relative to the working directory. */
export async function ask(scenario: Scenario): Promise<PlanReport> {
  const notes: string[] = [];
  const { geometry, publishedAs } = await readModel(scenario.model ?? 'ouro-1.4b');
  const { device, spec, loaded } = await chooseDevice(scenario, notes);
  const shared = spec?.unifiedMemory === true && scenario.utilization === undefined;
  if (shared) notes.push(`${spec.name} shares its memory with the system, which lets the GPU have about ${UNIFIED_UTILIZATION * 100} % by default: --utilization changes that`);
  const question = readQuestion(shared ? { ...scenario, utilization: UNIFIED_UTILIZATION } : scenario, geometry);
  const imported = scenario.import === undefined ? null : (await import('./import-csv.js')).readKernelTimes(scenario.import);
  if (imported && !spec && !loaded) throw new UserError('--import needs a device whose datasheet prices the other kernels', 'name it with --device');
  const pricer = choosePricer(spec, loaded, imported, await staleKernels(loaded, notes), notes);
  const { candidates, refused } = listCandidates(geometry, question.filter);
  const { filter: _filter, ...settings } = question;
  if (question.gpus > 1) notes.push(`memory, KV/token and KV at 1M are those of one of the ${question.gpus} GPUs`);
  const link = spec?.interconnect ?? null;
  if (spec && link && link.mostGpus !== null && question.gpus > link.mostGpus) {
    notes.push(`at most ${link.mostGpus} ${spec.name} are joined directly: exchanges between ${question.gpus} are priced at ${(link.beyondBytesPerSecond ?? 0) / 1e9} GB/s of PCI Express`);
  }
  if (geometry.preludeLayers + geometry.codaLayers > 0) notes.push(`ratios are those of the looped core; prelude and coda layers keep their cache, so the whole cache shrinks by less (modelRatio in the JSON)`);
  if (question.contextTokens > geometry.maxPositions) notes.push(`${question.contextTokens} tokens exceed the ${geometry.maxPositions} positions that ${geometry.name} was trained for: memory and time hold, quality does not`);
  return makePlan({ ...settings, bindingBytes: loaded?.calibration.device.limits['maxStorageBufferBindingSize'] ?? Infinity, scenario: readWords(scenario), geometry, publishedAs, device, pricer, imported: imported !== null, candidates, notes }, refused);
}

/** Name and description as they may be shown: one line each, nothing that a terminal would interpret. */
const readWords = (s: Scenario): PlanReport['scenario'] => ({
  name: s.name === undefined ? null : printable(s.name.replace(/\s+/g, ' ').trim()),
  description: s.description === undefined ? null : printable(s.description.replace(/\s+/g, ' ').trim()),
});

/** A preset by name, or a model file by path. Published quality belongs to presets only. */
async function readModel(name: string): Promise<{ geometry: Geometry; publishedAs: string | null }> {
  const isPath = /[/\\]|\.json$/i.test(name);
  if (!isPath) {
    const preset = findPreset(name);
    return { geometry: preset, publishedAs: preset.name };
  }
  const { readModelFile } = await import('../geometry/hf-config.js');
  return { geometry: readModelFile(name), publishedAs: null };
}

interface Chosen {
  device: DeviceChoice;
  spec: DeviceSpec | null;
  loaded: LoadedCalibration | null;
}

/** The device: named, or measured (--calibration), or the one whose memory --vram states. */
async function chooseDevice(s: Scenario, notes: string[]): Promise<Chosen> {
  const vram = s.vram === undefined ? null : readVram(String(s.vram));
  if (s.calibration !== undefined) return measuredDevice(s, vram, await loadCalibration(s.calibration));
  if (s.device === undefined && vram === null) throw new UserError('the memory of the GPU is not given', 'add --vram 141GB, or --device h200 (lla-sim models --devices lists them)');
  const spec = s.device === undefined ? byMemory(vram as number, notes) : findDevice(s.device);
  const vramBytes = vram ?? (spec as DeviceSpec).vramBytes;
  if (!spec) return { device: { id: null, name: `${formatDecimalBytes(vramBytes)} GPU`, vramBytes, calibration: null }, spec, loaded: null };
  const loaded = await findCalibration((description) => deviceOfAdapter(description)?.id === spec.id, notes);
  return { device: { id: spec.id, name: spec.name, vramBytes, calibration: describeCalibration(loaded) }, spec, loaded };
}

/** Share of unified memory that macOS lets the GPU wire by default. */
const UNIFIED_UTILIZATION = 0.75;
/** Less than this is a number without its unit, not a GPU. */
const MIN_VRAM_BYTES = 2 ** 20;

function readVram(text: string): number {
  const bytes = parseBytes(text, '--vram');
  if (bytes < MIN_VRAM_BYTES) throw new UserError(`--vram ${show(text)} is ${bytes} bytes, less than any GPU has`, 'add the unit, such as 141GB');
  return bytes;
}

const describeCalibration = (loaded: LoadedCalibration | null): DeviceChoice['calibration'] =>
  loaded && { file: loaded.file, adapter: loaded.calibration.device.description, software: loaded.calibration.device.software };

function measuredDevice(s: Scenario, vram: number | null, loaded: LoadedCalibration): Chosen {
  const measured = loaded.calibration.device;
  const named = s.device === undefined ? null : findDevice(s.device);
  const spec = measured.software ? null : (deviceOfAdapter(measured.description) ?? null);
  if (named && measured.software) {
    throw new UserError(`${show(loaded.file)} was measured on a software adapter (${measured.description}) and cannot price ${named.name}`, 'leave --calibration out, or measure on that device with lla-sim calibrate');
  }
  if (named && named.id !== spec?.id) throw new UserError(`${show(loaded.file)} was measured on ${measured.description}, not on ${named.name}`, 'leave --device or --calibration out');
  // A software adapter's memory is its host's.
  const vramBytes = vram ?? spec?.vramBytes ?? measured.memoryBytes ?? (measured.software ? loaded.calibration.host.memoryBytes : null);
  if (vramBytes === null) throw new UserError(`${show(loaded.file)} does not say how much memory ${measured.description} has`, 'add --vram');
  return { device: { id: spec?.id ?? null, name: spec?.name ?? measured.description, vramBytes, calibration: describeCalibration(loaded) }, spec, loaded };
}

/** The catalogue's device with this much memory; the first by the stated order where several match. */
function byMemory(vram: number, notes: string[]): DeviceSpec | null {
  const [first, ...others] = devicesByVram(vram);
  if (!first) {
    notes.push(`no device of the catalogue has ${formatDecimalBytes(vram)}: memory is planned, time is not; name a device with --device to add it`);
    return null;
  }
  notes.push(
    others.length === 0
      ? `${formatDecimalBytes(vram)} is taken for ${first.name}`
      : `${formatDecimalBytes(vram)} is taken for ${first.name} (nearest in memory, then fastest memory); ${others.map((d) => d.id).join(', ')} match too: choose with --device`,
  );
  return first;
}

/** Kernels whose source has changed since the calibration was made: their times are not used. */
async function staleKernels(loaded: LoadedCalibration | null, notes: string[]): Promise<ReadonlySet<string>> {
  if (!loaded) return new Set();
  const { kernelHash } = await import('../schedule/kernel-source.js');
  const stale = loaded.calibration.kernels.filter((k) => k.sourceHash !== kernelHash(k.kernel as KernelName) || Object.values(k.predictors).some((p) => p.modelVersion !== TERMS_VERSION)).map((k) => k.kernel);
  if (stale.length > 0) notes.push(`${loaded.file} is stale for ${stale.join(', ')}: the kernels have changed since; they are priced by roofline until it is measured again (lla-sim calibrate)`);
  return new Set(stale);
}

function choosePricer(spec: DeviceSpec | null, loaded: LoadedCalibration | null, imported: { predictors: Predictors; source: string } | null, stale: ReadonlySet<string>, notes: string[]): Pricer | null {
  const link = spec?.interconnect ?? null;
  if (loaded) {
    if (loaded.calibration.device.software) notes.push(`times are those of a software adapter (${loaded.calibration.device.description}): they say nothing about a GPU`);
    return calibrationPricer(loaded.calibration, { stale, link, source: loaded.file, ...(imported ? { imported: imported.predictors } : {}) });
  }
  if (!spec) return null;
  const rates = { bytesPerSecond: spec.memoryBytesPerSecond, f32FlopsPerSecond: spec.f32FlopsPerSecond, matrixFlopsPerSecond: spec.matrixFlopsPerSecond };
  if (imported) return importedPricer(imported.predictors, rates, link, imported.source);
  return datasheetPricer(rates, link);
}
