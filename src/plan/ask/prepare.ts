/**
 * From what was read to a report: everything about planning that touches no file, so that a browser runs it, too.
 * `Sources` is plain data and survives JSON; on-disk.ts reads it on a machine, a report carries it in its page.
 */
import { calibrationPricer, type PricedParts } from '../../cost/pricers.js';
import type { ServerSpread } from '../../cost/evidence.js';
import { overlapped, priceStep, type Pricer } from '../../cost/latency.js';
import type { DeviceSpec } from '../../devices/catalogue.js';
import { printable, UserError, show } from '../../errors.js';
import type { Geometry } from '../../geometry/geometry.js';
import { findPreset, presetOf } from '../../geometry/presets.js';
import type { Calibration } from '../../schema/calibration.js';
import type { Scenario } from '../../schema/settings.js';
import { readProbabilities } from './probabilities.js';
import { formatDecimalBytes, parseBytes } from '../../numbers/units.js';
import { listCandidates } from './candidates.js';
import { configurationOf } from '../evaluate/evaluate.js';
import { fidelityNotes, type Fidelity } from '../evaluate/fidelity.js';
import { makePlan, type Rows } from '../plan.js';
import { tunedAlone } from '../../stacks/attainable.js';
import { gpuPricer, type GpuSources } from '../../stacks/gpu-pricer.js';
import { asSixteenBits } from '../../stacks/fewer-bits.js';
import { withDividingAttention, type Runtime } from '../../stacks/runtime.js';
import { meanLoops, underRuntime } from '../../stacks/runtime-pricer.js';
import { checkpointNote } from '../../stacks/serve-command.js';
import {
  attendsInOneCall,
  isAsynchronous,
  isEarlierEngine,
  isFittedOverlapped,
  type StackTables,
  fusedBy,
} from '../../stacks/serving.js';
import { notesOf, refusesModel, slowProductsNote } from './notes.js';
import { readQuestion } from './settings.js';
import { testedOf, testedSimulation, type JudgedGroup } from './tested.js';
import type { DeviceChoice, PlanReport, PlanRequest } from '../types.js';
import {
  askedBatchedTokens,
  besideMeasured,
  hostOf,
  promptChunkTokens,
  runtimeOf,
  runtimeNote,
  serverOf,
  servingStack,
} from './server.js';

/** What planning reads of a calibration. */
export type PricedCalibration = PricedParts & {
  readonly device: Pick<Calibration['device'], 'description' | 'software' | 'limits'>;
  readonly host?: Pick<Calibration['host'], 'browser'>;
};

/** A model and the name under which figures are published for it; null when none are. */
export interface ModelSource {
  readonly geometry: Geometry;
  readonly publishedAs: string | null;
}

/** All that a plan rests on beside the scenario itself: data, but for what is read only where it is asked for. */
export interface Sources {
  readonly model: ModelSource;
  readonly device: DeviceChoice;
  /** The datasheet; null for a device that the catalogue does not know. */
  readonly spec: DeviceSpec | null;
  readonly calibration: {
    readonly file: string;
    readonly content: PricedCalibration;
    /** Kernels whose source has changed since. */ readonly stale: readonly string[];
  } | null;
  /** Tables of a serving stack and laws of what tuned kernels reach; null where the calibration prices. */
  readonly gpu: GpuSources | null;
  /** What tuned kernels reach, beside a calibration of a device of the catalogue. */
  readonly attainable?: GpuSources;
  /** Tables of the other stacks on the device; no part of the data. */
  readonly otherStacks?: () => readonly GpuSources[];
  /** Whose kernels price; null where nothing is known about speed. */
  readonly stack: string | null;
  /** What `lla-sim fidelity` measured of this very model; published tables then do not count. */
  readonly fidelity?: Fidelity;
  /** How predictions fared on published figures that judge. */
  readonly judged?: readonly JudgedGroup[];
  /** How the device and its measurements were chosen. */
  readonly notes: readonly string[];
  /** How the stack was chosen. */
  readonly stackNotes: readonly string[];
}

/** A preset as a source: the only models with published figures. */
export function presetSource(name: string): ModelSource {
  const geometry = findPreset(name);
  return { geometry, publishedAs: presetOf(geometry) };
}

/** The same kernels under a server of another engine: it may call them otherwise, and nobody measured its host. */
function ofEngine(host: ReturnType<typeof hostOf>, pricer: Pricer, spreadOfOthers?: ServerSpread): Pricer {
  if (host && attendsInOneCall(host)) return pricer;
  const { besidePrompts: _, ...apart } = pricer;
  const isWider = host && isEarlierEngine(host) && pricer.spread && spreadOfOthers;
  return isWider ? { ...apart, spread: spreadOfOthers } : apart;
}

/** Less than this is a number without its unit, not a GPU. */
const MIN_VRAM_BYTES = 2 ** 20;

/** Bytes of a GPU's memory. @throws UserError when it is no amount, or less than any GPU has */
export function readVram(text: string): number {
  const bytes = parseBytes(text, '--vram');
  if (bytes < MIN_VRAM_BYTES)
    throw new UserError(`--vram ${show(text)} is ${bytes} bytes, less than any GPU has`, 'add the unit, such as 141GB');
  return bytes;
}

/** Share of unified memory that macOS lets the GPU wire by default. */
const UNIFIED_UTILIZATION = 0.75;

/** A request and the combinations that cannot exist for its model. */
export interface Prepared {
  readonly request: PlanRequest;
  readonly refused: PlanReport['refused'];
}

/** Plans a scenario from its sources. @throws UserError for settings that cannot be */
export function answer(scenario: Scenario, sources: Sources, rows: Rows = {}): PlanReport {
  const { request, refused } = prepare(scenario, sources);
  return makePlan(request, refused, rows);
}

/** Share of a GPU's memory below which a stated one may be that of a slice. */
const PART_OF_MEMORY = 0.9;

/** Reads a scenario's settings over its sources into a request. Pictures price more shapes with the same request. */
export function prepare(scenario: Scenario, sources: Sources): Prepared {
  const { spec, calibration, device } = sources;
  const { geometry, publishedAs } = sources.model;
  const notes = [...sources.notes, ...sources.stackNotes];
  const shared = spec?.unifiedMemory === true && scenario.utilization === undefined;
  if (shared)
    notes.push(
      `${spec.name} shares its memory with the system, which lets the GPU have about ${UNIFIED_UTILIZATION * 100} ` +
        '% by default: --utilization changes that',
    );
  if (
    spec &&
    spec.driverBytes === device.vramBytes &&
    formatDecimalBytes(spec.driverBytes) !== formatDecimalBytes(spec.vramBytes)
  )
    notes.push(
      `memory is the ${formatDecimalBytes(spec.driverBytes)} that the driver of ${spec.name} reports, not the ` +
        `${formatDecimalBytes(spec.vramBytes)} on the box: --vram is taken literally`,
    );
  if (spec && scenario.device !== undefined && device.vramBytes < PART_OF_MEMORY * spec.vramBytes)
    notes.push(
      `${formatDecimalBytes(device.vramBytes)} of ${spec.name}'s ${formatDecimalBytes(spec.vramBytes)} are planned, ` +
        'at the rates of the whole GPU: a slice of it (MIG) is slower',
    );
  const settled = shared ? { ...scenario, utilization: UNIFIED_UTILIZATION } : scenario;
  const question = readQuestion(settled, geometry, (gpus) => serverOf(sources, gpus, scenario));
  const checkpoint = question.server && checkpointNote(geometry);
  if (checkpoint) notes.push(checkpoint);
  if (question.server?.stepGib !== undefined)
    notes.push(
      `${question.server.server} keeps more for itself from ${question.server.stepGib} GiB ` +
        `(${formatDecimalBytes(question.server.stepGib * 2 ** 30)}) of memory on, and this GPU lies at that edge: ` +
        'with slightly more memory fewer sequences may fit',
    );
  if (question.cacheType === 'fp8')
    notes.push('nothing is published about the quality of a cache in 8-bit floats on these models');
  const { fidelity } = sources;
  if (!fidelity && (question.targets.maxKl !== undefined || question.targets.minRecall !== undefined))
    throw new UserError(
      `--${question.targets.maxKl === undefined ? 'min-recall' : 'max-kl'} is about what lla-sim fidelity ` +
        'measured, and no such file is given',
      'add --fidelity FILE',
    );
  if (fidelity) notes.push(...fidelityNotes(fidelity, question.contextTokens));
  const scheduled = (pricer: Pricer, tables: StackTables | null): Pricer =>
    isAsynchronous(
      scenario.server?.asyncScheduling,
      tables && { ...tables.file, version: String(scenario.server?.serverVersion ?? tables.file.version) },
    ) && !isFittedOverlapped(tables?.file.stack ?? null)
      ? overlapped(pricer)
      : pricer;
  const host = hostOf(sources, scenario);
  const refuses = host && scenario.server?.serverVersion !== undefined && refusesModel(host, sources.model);
  if (refuses) notes.push(refuses);
  const tabled = choosePricer(sources, question.gpus, notes);
  const found = tabled && ofEngine(host, tabled, sources.gpu?.spreadOfOthers);
  if (host && isEarlierEngine(host))
    notes.push(
      `${host.name} has vLLM’s first engine: what its host takes is not known, so times are those of today’s engine, ` +
        'and widths those of a server that nobody measured',
    );
  const asked = runtimeOf(scenario, sources, question.gpus);
  const runtime =
    asked && found && spec && scenario.measuredStep !== undefined
      ? besideMeasured(asked, scenario.measuredStep, (own, contextTokens) => {
          const stored = { ...question.choice, storage: 'f16' as const };
          const of = { ...question, geometry, choice: stored, bindingBytes: Infinity };
          const c = configurationOf(of, { codec: { kind: 'full' }, path: 'full', materialised: false, eviction: null });
          const pricer = underRuntime(found, own, spec, { shares: null, chunkTokens: contextTokens });
          return priceStep(c, pricer, 1, contextTokens);
        })
      : asked;
  const shares = depthOf(scenario, geometry, publishedAs);
  if (shares && !runtime)
    notes.push(
      '--depth changes no time of a plan: of servers only vllm-rlt lets tokens leave early (--stack vllm-rlt)',
    );
  const chunkOf = ({ source }: Runtime): number =>
    askedBatchedTokens(scenario.server) ?? source.terms.defaults.maxNumBatchedTokens;
  const underAny = (tables: Pricer, gpu: DeviceSpec, own: Runtime): Pricer =>
    underRuntime(tables, own, gpu, { shares, chunkTokens: chunkOf(own) });
  const pricer =
    found && spec && runtime ? underAny(found, spec, runtime) : found && scheduled(found, sources.gpu?.stack ?? null);
  if (runtime) notes.push(runtimeNote(runtime.source));
  const measured = fidelity ? { measured: fidelity.rows.map((row) => row.codec) } : {};
  const { candidates, refused } = listCandidates(geometry, { ...question.filter, ...measured });
  const { filter: _filter, ...settings } = question;
  notes.push(...notesOf(scenario, sources, question, candidates), ...slowProductsNote(pricer ?? null, geometry));
  const like = { stack: sources.stack, server: host, geometry, device };
  const bindingBytes = calibration?.content.device.limits['maxStorageBufferBindingSize'] ?? Infinity;
  return {
    request: {
      ...settings,
      bindingBytes,
      scenario: readWords(scenario),
      geometry,
      publishedAs,
      ...(fidelity ? { fidelity } : {}),
      device,
      pricer,
      // lla-sim's own decoder, which calibrations are of, takes fewer.
      ...(sources.gpu
        ? {
            promptChunkTokens: runtime
              ? chunkOf(runtime)
              : promptChunkTokens(scenario, host, device, { geometry, contextTokens: question.contextTokens }),
          }
        : {}),
      ...(found && spec && runtime && scenario.attention === undefined
        ? {
            otherAttention: () => {
              const other = withDividingAttention(runtime);
              return other && { name: other.choice.attentionName, pricer: underAny(found, spec, other) };
            },
          }
        : {}),
      ...(runtime ? { runtime, ...(shares ? { meanLoops: meanLoops(shares) } : {}) } : {}),
      ...(spec && sources.gpu?.stack && !runtime
        ? {
            tuned: tunedOn(spec, sources.gpu),
            otherStacks: () =>
              (sources.otherStacks?.() ?? []).flatMap((gpu) => {
                const pricer = scheduled(pricesOn(spec, forModel(gpu, geometry, question.gpus)), gpu.stack);
                return gpu.stack ? { stack: gpu.stack.file.stack, pricer } : [];
              }),
          }
        : {}),
      ...(spec && sources.attainable ? { attainable: pricesOn(spec, sources.attainable) } : {}),
      stack: sources.stack,
      tables: pricingTables(sources),
      ...(scenario.stack === 'attainable' ? { tablesLeftOut: true } : {}),
      servingStack: servingStack(sources, scenario),
      servingVersion: host?.version ?? null,
      tested: testedOf(sources.judged ?? [], like),
      ...(question.targets.secondsToFirstToken === null
        ? {}
        : { testedFirst: testedSimulation(sources.judged ?? [], like)['first token'] }),
      candidates,
      notes,
    },
    refused,
  };
}

function pricingTables({ gpu }: Sources): PlanReport['stack'] {
  if (!gpu?.stack) return null;
  const { path, file } = gpu.stack;
  return { name: file.stack, version: file.version, file: path };
}

const depthOf = ({ workload }: Scenario, { loops }: Geometry, preset: string | null): readonly number[] | null =>
  workload?.depth === undefined ? null : readProbabilities(String(workload.depth), loops, preset);

/** Name and description as they may be shown: one line each, nothing that a terminal would interpret. */
const readWords = (s: Scenario): PlanReport['scenario'] => ({
  name: s.name === undefined ? null : printable(s.name.replace(/\s+/g, ' ').trim()),
  description: s.description === undefined ? null : printable(s.description.replace(/\s+/g, ' ').trim()),
});

function choosePricer({ spec, calibration, gpu, model }: Sources, gpus: number, notes: string[]): Pricer | null {
  const link = spec?.interconnect ?? null;
  if (calibration) {
    const { file, content, stale } = calibration;
    if (stale.length > 0)
      notes.push(
        `${file} is stale for ${stale.join(', ')}: these kernels, or their model, have changed since; they are ` +
          'priced by roofline until it is measured again (lla-sim calibrate)',
      );
    if (content.device.software)
      notes.push(`times are those of a software adapter (${content.device.description}): they say nothing about a GPU`);
    const browser = content.host?.browser;
    if (browser) notes.push(`times were measured in a browser, ${browser.name} ${browser.version}`);
    const pricer = calibrationPricer(content, { stale: new Set(stale), link, source: file });
    return model.geometry.quantised ? asSixteenBits(pricer) : pricer;
  }
  return spec && gpu ? pricesOn(spec, forModel(gpu, model.geometry, gpus)) : null;
}

/** With what the stack's kernels do on the way for this model. */
const forModel = (gpu: GpuSources, geometry: Geometry, gpus: number): GpuSources => ({
  ...gpu,
  fused: fusedBy(gpu.stack?.file.stack ?? null, geometry, gpus),
});

/** Prices of tuned kernels under the same server, made when they are asked for. */
function tunedOn(spec: DeviceSpec, gpu: GpuSources): () => Pricer {
  let pricer: Pricer | null = null;
  return () => (pricer ??= pricesOn(spec, { ...gpu, stack: null, laws: tunedAlone(gpu.laws) }));
}

/** Prices of a device of the catalogue. */
export const pricesOn = (spec: DeviceSpec, gpu: GpuSources): Pricer =>
  gpuPricer(
    gpu,
    {
      bytesPerSecond: spec.memoryBytesPerSecond,
      f32FlopsPerSecond: spec.f32FlopsPerSecond,
      matrixFlopsPerSecond: spec.matrixFlopsPerSecond,
      units: spec.units,
      l2Bytes: spec.l2Bytes,
    },
    spec.interconnect,
  );
