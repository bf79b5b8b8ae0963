/** Whose kernels price a plan: the rule, without the files. The browser page chooses by it too. */
import type { Interval, ServerSpread } from '../cost/evidence.js';
import { chipOf, DEVICES, type DeviceSpec } from '../devices/catalogue.js';
import { UserError, show } from '../errors.js';
import { tileSecondsPerByte } from '../cost/beside-prompts.js';
import { lawsOf, tileRates, type AttainableFile } from './attainable.js';
import type { GpuSources } from './gpu-pricer.js';
import { isAlike, type RateRatio } from './same-chip.js';
import { runtimeSource } from './runtime.js';
import type { RuntimeFile } from './runtime-schema.js';
import {
  float8On,
  servedBy,
  STACK_CHOICES,
  STACK_LABELS,
  stackLabel,
  stackName,
  STACKS,
  type RuntimeName,
  type ServerFile,
  type ServerTime,
  type Stack,
  type StackTables,
  isRuntime,
  isStack,
  usualStack,
  walksAlone,
} from './serving.js';

/** A choice whose tables are still to be read. */
export interface StackDecision {
  /** A stack's name, `lla-sim` or `attainable`. */
  readonly stack: string;
  /** Tables of this stack on the device price; null: a calibration does, or laws alone. */
  readonly tables: string | null;
  /** What the reader needs to know about the choice. */
  readonly notes: readonly string[];
  /** A stack was chosen although none serves the model. */
  readonly unserved: boolean;
  /** Nobody's tables price, and the server that would run there does not divide a sequence's attention. */
  readonly undivided?: boolean;
}

/** Whose tables price kernels of servers with a runtime of their own: what they call, PyTorch's products, is alike. */
const RUNTIME_KERNELS: Stack = 'vllm';

/**
 * Chooses the stack: the first that serves the model and has tables of the GPU; for a model that nobody serves, the
 * first with tables; then the calibration of the device; then what tuned kernels reach, also where a stack is asked for
 * that runs on the GPU and has no tables of it.
 * @param asked `--stack`, where it is a name
 * @param model the name under which stacks list the model; null where it is not a preset
 * @param calibrated a calibration of this device that was found, by file name
 * @param has whether there are tables of a stack on the device
 * @throws UserError for a stack that cannot price this device
 */
export function decideStack(
  asked: string | undefined,
  spec: DeviceSpec,
  model: string | null,
  calibrated: string | null,
  has: (stack: string) => boolean,
): StackDecision {
  if (asked !== undefined) return askedStack(asked, spec, model, calibrated, has);
  const notes: string[] = [];
  const have = STACKS.filter(has);
  if (have.length === 0 && calibrated === null)
    notes.push(`nobody has published kernel times on ${spec.name}: ${tunedElsewhere(spec)}`);
  else
    for (const stack of STACKS)
      if (!have.includes(stack) && servedBy(model, stack))
        notes.push(`${stackLabel(stack)} serves ${model}, but there are no kernel times of it on ${spec.name}`);
  const serving = have.find((stack) => servedBy(model, stack));
  const chosen = serving ?? have[0];
  if (chosen === undefined) {
    const stack = calibrated === null ? 'attainable' : 'lla-sim';
    return { stack, tables: null, notes, unserved: false, undivided: walksAlone(usualStack(model), spec.id) };
  }
  if (calibrated !== null)
    notes.push(`${calibrated} was measured on this device and is not used: --stack lla-sim prices by it`);
  return { stack: chosen, tables: chosen, notes, unserved: serving === undefined };
}

function askedStack(
  asked: string,
  spec: DeviceSpec,
  model: string | null,
  calibrated: string | null,
  has: (stack: string) => boolean,
): StackDecision {
  const decided = (tables: string | null): StackDecision => ({
    stack: asked,
    tables,
    notes:
      asked in STACK_LABELS && !servedBy(model, asked)
        ? [`${stackLabel(asked)} does not run ${model ?? 'this model'}`]
        : [],
    unserved: false,
  });
  if (asked === 'lla-sim') {
    if (calibrated === null)
      throw new UserError(
        `--stack lla-sim needs a calibration of ${spec.name}, and there is none`,
        'measure with lla-sim calibrate on that device, or leave --stack out',
      );
    return decided(null);
  }
  if (asked === 'attainable') return decided(null);
  if (isRuntime(asked) && runsOn(asked, spec))
    return { ...decided(has(RUNTIME_KERNELS) ? RUNTIME_KERNELS : null), stack: asked };
  if (has(asked)) return decided(asked);
  if (runsOn(asked, spec)) {
    const own = decided(null);
    const note = `there are no kernel times of ${stackLabel(asked)} on ${spec.name}: ${tunedElsewhere(spec)}`;
    return { ...own, stack: 'attainable', notes: [note, ...own.notes], undivided: walksAlone(asked, spec.id) };
  }
  throw new UserError(
    (STACK_CHOICES as readonly string[]).includes(asked)
      ? `${stackLabel(asked)} does not run on ${spec.name}`
      : `--stack knows no ${show(asked)}`,
    `write one of ${STACK_CHOICES.filter(
      (name) =>
        (name !== 'lla-sim' || calibrated !== null) && (!(isStack(name) || isRuntime(name)) || runsOn(name, spec)),
    ).join(', ')}, or the path of a file that lla-sim import wrote`,
  );
}

/** How much slower a card is than one with the same chip: by products where both were measured, else by datasheets. */
function ratioOf(spec: DeviceSpec, chip: string): RateRatio {
  const measured = DEVICES.find(({ id }) => id === chip) ?? spec;
  return {
    memory: measured.memoryBytesPerSecond / spec.memoryBytesPerSecond,
    compute:
      measured.productFlopsPerSecond && spec.productFlopsPerSecond
        ? measured.productFlopsPerSecond / spec.productFlopsPerSecond
        : measured.matrixFlopsPerSecond / spec.matrixFlopsPerSecond,
    tile: tileSecondsPerByte(tileRates(spec)) / tileSecondsPerByte(tileRates(measured)),
  };
}

/** Said where tables are of another GPU with the same chip. */
export const otherCardNotes = (spec: DeviceSpec, { file }: StackTables): string[] =>
  file.device === spec.id
    ? []
    : [
        isAlike(ratioOf(spec, file.device))
          ? `times are those of the ${file.device}, which has the same chip and memory; exchanges go by its own link`
          : `kernel times are those of the ${file.device}, which has the same chip, at the rates of this card`,
      ];

/** Whether a server runs on a GPU, with tables of it or without. */
export const runsOn = (stack: string, { vendor }: DeviceSpec): boolean =>
  stack === 'transformers' ||
  ((isStack(stack) || isRuntime(stack)) && (vendor === 'nvidia' || (vendor === 'amd' && stack !== 'trtllm')));

/** Said where tables price a model that their stack does not serve. */
export const unservedNote = (model: string | null, { file }: StackTables): string =>
  `neither vLLM, SGLang nor TRT-LLM runs ${model ?? 'this model'}: kernels of ${stackName(file)} price what they can ` +
  'do of it';

/** What prices a GPU without tables. */
function tunedElsewhere({ sameChipAs, vendor }: DeviceSpec): string {
  const gpus =
    sameChipAs !== undefined
      ? `the ${sameChipAs}, which has the same chip`
      : vendor === 'nvidia'
        ? 'other GPUs'
        : 'other GPUs, all of them by NVIDIA';
  return `times are what tuned kernels reach on ${gpus}`;
}

/** Fewer published rows of a stack than this tell less than those of all stacks together. */
const FEWEST_ROWS = 15;

/** What the server of a stack adds to a step; of all servers together where little or nothing is published of it. */
function serverOf({ servers }: ServerFile, stack: string | null): ServerTime {
  const own = stack === null ? undefined : servers[stack];
  return own && own.rows >= FEWEST_ROWS ? own : servers['all']!;
}

/** How far whole servers were off: this one on this GPU or on others, else one that nobody measured. */
function spreadOf({ servers }: ServerFile, stack: string | undefined, device: string): ServerSpread {
  const own = (stack === undefined ? undefined : servers[stack]) ?? servers['all']!;
  return own.spread.here[device] ?? own.spread.elsewhere;
}

/** A server with a runtime tells its own steps; first tokens over a network were measured of none that fits. */
function spreadOfRuntime({ servers, runtimes }: KnownFiles, name: RuntimeName): ServerSpread | null {
  const { serves, spread } = runtimes.runtimes[name];
  const { firstToken } = servers.servers['all']!.spread.elsewhere;
  return serves ? { step: 0, firstToken: Math.max(0, firstToken - spread) } : null;
}

const NOTHING: Interval = { estimate: 0, low: 0, high: 0 };

/** Prices of kernels without what a server adds to a step. */
export const kernelsAlone = (sources: GpuSources): GpuSources => ({
  ...sources,
  server: { secondsPerStep: NOTHING, secondsPerSequence: NOTHING, secondsPerRequest: NOTHING },
  spread: null,
});

/** Files of the package that hold for every GPU. */
export interface KnownFiles {
  readonly attainable: AttainableFile;
  readonly servers: ServerFile;
  readonly runtimes: RuntimeFile;
}

/**
 * What prices a GPU, from files that were read.
 * @param asked the stack that was chosen
 * @param undivided attention of the server without tables does not divide a sequence
 */
export function gpuSources(
  spec: DeviceSpec,
  stack: StackTables | null,
  files: KnownFiles,
  asked?: string,
  undivided = false,
): GpuSources {
  const { runtimes } = files;
  // Tables may lack the operation: those of the RTX 4090 have shared KV heads alone.
  const walks = undivided || (stack !== null && !isRuntime(asked) && walksAlone(stack.file.stack, spec.id));
  return {
    ...(isRuntime(asked) ? { runtime: runtimeSource(runtimes, asked, spec.id) } : {}),
    device: spec.id,
    chip: chipOf(spec),
    ratio: ratioOf(spec, chipOf(spec)),
    stack,
    laws: lawsOf(files.attainable, spec, chipOf(spec), walks),
    float8: float8On(spec),
    server: serverOf(files.servers, stack?.file.stack ?? null),
    spreadOfOthers: spreadOf(files.servers, undefined, spec.id),
    spread: isRuntime(asked) ? spreadOfRuntime(files, asked) : spreadOf(files.servers, stack?.file.stack, spec.id),
  };
}
