/** Runs the sections of a validation on one device, within a time budget. */
import { OUT_OF_TIME, type Budget } from '../io/budget.js';
import { validationModel } from '../bench/calibrate/lists.js';
import { describeProgram } from '../bench/describe.js';
import { describeHost } from '../bench/host.js';
import { OTHER_MACHINE } from '../cost/pricers.js';
import { deviceOfAdapter } from '../devices/find.js';
import { EXIT, UserError } from '../errors.js';
import { formatNumber } from '../numbers/units.js';
import type { Device } from '../gpu/index.js';
import { calibratedFor, type Calibrated } from './calibrated.js';
import { checkCapacity, inProcesses, onDevice, type CapacityReport } from './memory/capacity.js';
import { chooseControls, DriftWatch, shares, together, type Weighed } from './controls.js';
import { checkCorrectness, type CorrectnessReport } from './memory/correctness.js';
import { chosenOf, promptGrid, servingGrid, servingModel, stepGrid, type GridRules } from './grid.js';
import type { CheckRules, DecoderCase } from './decoding.js';
import { callsOfStep, checkSteps, type StepRules } from './latency.js';
import { checkLongContext, type LongContextReport } from './long-context.js';
import { checkMemory, memoryCases, type MemoryReport } from './memory/memory.js';
import { callsOfPrompt, checkPrompts, type PromptCase } from './prefill.js';
import { partsOf, type Part } from './parts.js';
import { judge, servingChecks } from './checks.js';
import { kernelSummaries, SECTIONS, type Section, type ValidationReport } from './report.js';
import { checkServing, type ServingReport } from './serving.js';
import { summarise } from './statistics.js';

export interface ValidateOptions {
  /** Runs already, for all sections. */
  readonly budget: Budget;
  readonly quick: boolean;
  readonly seed: number;
  readonly sections: readonly Section[];
  /** Serve requests with the decoder, and simulate them. */
  readonly serving: boolean;
  /** Calibration file; the one that fits the device unless given. */
  readonly calibration: string | null;
  /** Model whose steps are measured: a preset. */
  readonly model: string | null;
  /** Memory of a GPU, where the catalogue does not know it; on a software adapter what a decoder may take. */
  readonly memoryBytes: number | null;
  /** The program, for attempts that run in processes of their own; null where it is not known. */
  readonly cli: string | null;
  readonly signal?: AbortSignal;
  readonly onProgress?: (p: {
    readonly section: string;
    readonly doing: string;
    readonly elapsedSeconds: number;
    readonly budgetSeconds: number;
  }) => void;
}

const MIB = 2 ** 20;
/** Memory for capacity on a software adapter: large compared with the process's own memory. */
const SOFTWARE_CAPACITY_BYTES = 2048 * MIB;
const SOFTWARE_CAPACITY_CONTEXT = 1024;
const CAPACITY_CONTEXT = 4096;
/** Memory of a GPU that the driver keeps (plan --reserve). */
const RESERVE_BYTES = 512 * MIB;
/** Decoders open together, and the longest cache, on a software adapter; on a GPU a share of its memory. */
const SOFTWARE_OPEN_BYTES = 3072 * MIB;
const OPEN_SHARE = 0.6;
/** Of the time for steps, prompts and the long context. */
const STEPS_SHARE = 0.75;
const PREFILL_SHARE = 0.1;
const LONG_CONTEXT_SHARE = 0.15;
/** Points of the calibration that are measured again. */
const CONTROLS = { quick: 4, whole: 16 } as const;

interface Session {
  readonly device: Device;
  readonly o: ValidateOptions;
  readonly notes: string[];
  readonly memoryBytes: number | null;
  readonly bindingBytes: number;
  /** Of all decoders that are open at once. */
  readonly openBytes: number;
  readonly stopped: () => boolean;
  /** The part of a section, which has not begun before. */
  readonly partOf: (part: Part) => Budget;
  readonly progress: (section: string, doing: string) => void;
  /** What the checks of a section are given, with its budget. */
  readonly rules: (section: string, budget: Budget) => Required<CheckRules>;
}

/**
 * @throws UserError when it was interrupted, and for a calibration of another device
 * @throws GpuError when the device fails
 */
export async function validate(device: Device, o: ValidateOptions): Promise<ValidationReport> {
  const { budget } = o;
  const asks = (section: Section): boolean => o.sections.includes(section);
  const { software, description, driver } = device.description;
  const memoryBytes =
    o.memoryBytes ?? (software ? SOFTWARE_CAPACITY_BYTES : (deviceOfAdapter(description)?.vramBytes ?? null));
  const progress = (section: string, doing: string): void =>
    o.onProgress?.({ section, doing, elapsedSeconds: budget.spent, budgetSeconds: budget.seconds });
  const s: Session = {
    device,
    o,
    notes: [],
    memoryBytes,
    bindingBytes: device.limits.maxStorageBufferBindingSize,
    openBytes: software ? SOFTWARE_OPEN_BYTES : OPEN_SHARE * (memoryBytes ?? SOFTWARE_OPEN_BYTES),
    stopped: () => o.signal?.aborted === true,
    partOf: partsOf(o),
    progress,
    rules: (section, own) => ({
      seed: o.seed,
      budget: own,
      stopped: s.stopped,
      onCase: (done, total, id) => progress(section, `${done + 1} of ${total}: ${id}`),
    }),
  };
  const wants = (section: Section): boolean => asks(section) && !s.stopped();
  const timesSteps = wants('latency') || wants('long-context');
  const timed = o.serving || timesSteps;
  const calibrated = timed ? await calibratedFor(device, describeHost(), o.calibration) : null;
  const { correctness, memory } = wants('memory') ? await memorySection(s) : { correctness: null, memory: null };
  const capacity = wants('capacity') ? await capacitySection(s) : null;
  if (timed && !calibrated)
    s.notes.push(
      `there is no calibration of ${description}: times have no prediction to compare with; measure ` +
        'with lla-sim calibrate',
    );
  if (calibrated?.difference)
    s.notes.push(
      `${calibrated.file} was measured on another machine (${calibrated.difference}): intervals are ` +
        `${OTHER_MACHINE} times as wide either way. Measure this machine with lla-sim calibrate`,
    );
  const { latency, longContext } =
    calibrated && timesSteps ? await timeSections(s, calibrated, wants) : { latency: null, longContext: null };
  const serving = calibrated && o.serving ? await servingSection(s, calibrated) : null;
  if (o.quick && o.sections.includes('long-context')) s.notes.push('--quick leaves the long context out');
  if (o.quick) s.notes.push('--quick: times are reported and not judged; memory, capacity and correctness are');
  if (!o.serving)
    for (const section of SECTIONS.filter((name) => !o.sections.includes(name)))
      s.notes.push(`${section} was not asked for`);
  if (s.stopped()) throw new UserError('interrupted: no result is printed', 'run it again', EXIT.interrupted);
  return {
    schema: 'lla-sim/validate',
    schemaVersion: 1,
    program: `${describeProgram().name} ${describeProgram().version}`,
    device: { description, driver, software, clock: device.clock },
    calibration: calibrated && { file: calibrated.file, stale: calibrated.stale, difference: calibrated.difference },
    quick: o.quick,
    seed: o.seed,
    elapsedSeconds: budget.spent,
    checks: [
      ...(serving ? servingChecks(serving.rows, !o.quick) : []),
      ...(o.serving && o.sections.length === 0
        ? []
        : judge({ software, quick: o.quick, correctness, memory, steps: latency?.steps ?? null, capacity })),
    ],
    correctness,
    memory,
    latency,
    capacity,
    longContext,
    serving,
    notes: s.notes,
  };
}

async function memorySection(s: Session): Promise<{ correctness: CorrectnessReport; memory: MemoryReport }> {
  const cases = memoryCases(s.o.quick);
  const memory = await checkMemory(s.device, { ...s.rules('memory', s.partOf('memory')), cases });
  // One case a codec and path: evictions and batches change what is stored, and the decoder's own tests compare those.
  const alike = ['geometry', 'codec', 'path', 'materialised', 'eviction'] as const;
  const distinct = cases.filter(
    ({ c }, i) => c.eviction === null && cases.findIndex((other) => alike.every((of) => other.c[of] === c[of])) === i,
  );
  const rules = s.rules('correctness', s.partOf('correctness'));
  const correctness = await checkCorrectness(s.device, { ...rules, cases: distinct });
  for (const [name, { notReached }, { length }] of [
    ['memory', memory, cases],
    ['correctness', correctness, distinct],
  ] as const)
    if (notReached > 0 && !s.stopped())
      s.notes.push(`${name}: ${length - notReached} of ${length} configurations, drawn by the seed; ${OUT_OF_TIME}`);
  return { correctness, memory };
}

/** Latency and long context, beside the same control points. */
async function timeSections(
  s: Session,
  calibrated: Calibrated,
  wants: (section: Section) => boolean,
): Promise<Pick<ValidationReport, 'latency' | 'longContext'>> {
  const rules = { ...gridRules(s), quick: s.o.quick, seed: s.o.seed };
  const [steps, prompts] = [stepGrid(rules), promptGrid(rules)];
  const calls = [
    ...steps.map((of) => callsOfStep(of, calibrated.pricer)),
    ...prompts.map((of) => callsOfPrompt(of, calibrated.pricer)),
  ];
  return watched(s, calibrated, calls, async (watch) => {
    const of = { calibrated, watch, budget: s.partOf('times') };
    return {
      latency: wants('latency') ? await latencySection(s, steps, prompts, of) : null,
      longContext: wants('long-context') && !s.o.quick ? await longContextSection(s, of) : null,
    };
  });
}

/** Serving, beside the probe alone: its rehearsals show how this machine differs from the calibration's. */
async function servingSection(s: Session, calibrated: Calibrated): Promise<ServingReport> {
  const rules = { ...gridRules(s), geometry: servingModel(s.device.description.software, s.o.model) };
  const cases = servingGrid(rules);
  const report = await watched(s, calibrated, [], (watch) =>
    checkServing(s.device, cases, { ...s.rules('serving', s.partOf('serving')), calibrated, watch }),
  );
  if (!s.stopped() && report.rows.length === 0 && s.o.sections.length === 0)
    throw new UserError(
      `no requests were compared: ${formatNumber(s.o.budget.seconds)} s are too few on this machine`,
      `give it more time, such as --budget ${Math.ceil((3 * s.o.budget.seconds) / 60)}m`,
    );
  const asked = new Map(
    cases.flatMap(({ id, runs }) => runs.map((run) => [`${id} ${run.load}`, run.requests] as const)),
  );
  const fewer = report.rows.filter(({ id, load, requests }) => requests < (asked.get(`${id} ${load}`) ?? 0));
  if (fewer.length > 0)
    s.notes.push(`serving: fewer requests than with the usual budget in ${fewer.length} of ${report.rows.length} runs`);
  return { model: rules.geometry.name, ...report };
}

const gridRules = (s: Session): Pick<GridRules, 'geometry' | 'software' | 'bindingBytes'> => {
  const { software } = s.device.description;
  return { geometry: validationModel(software, s.o.model), software, bindingBytes: s.bindingBytes };
};

/** Runs `timed` beside control points for these steps and prompts. */
async function watched<T>(
  s: Session,
  calibrated: Calibrated,
  calls: readonly (readonly Weighed[])[],
  timed: (watch: DriftWatch) => Promise<T>,
): Promise<T> {
  s.progress('controls', 'points of the calibration, to be measured again');
  const most = s.o.quick ? CONTROLS.quick : CONTROLS.whole;
  const controls = chooseControls(calibrated, together(calls.flatMap(shares)), most);
  const watch = await DriftWatch.open(s.device, calibrated, controls, s.o.seed);
  try {
    return await timed(watch);
  } finally {
    watch.free();
  }
}

/** `budget`: for all that is timed. */
type Watched = Pick<StepRules, 'calibrated' | 'watch' | 'budget'>;

async function latencySection(
  s: Session,
  steps: readonly DecoderCase[],
  prompts: readonly PromptCase[],
  of: Watched,
): Promise<ValidationReport['latency']> {
  const rulesOf = (section: string, share: number) => ({
    ...of,
    ...s.rules(section, of.budget.part(share * of.budget.seconds)),
  });
  const report = await checkSteps(s.device, steps, { ...rulesOf('steps', STEPS_SHARE), openBytes: s.openBytes });
  const prefill = await checkPrompts(s.device, prompts, rulesOf('prefill', PREFILL_SHARE));
  return {
    ...report,
    model: gridRules(s).geometry.name,
    controls: of.watch.rows(),
    summary: summarise(report.steps),
    kernels: kernelSummaries(report.steps),
    prefill,
  };
}

async function longContextSection(s: Session, of: Watched): Promise<LongContextReport | null> {
  const { geometry, bindingBytes } = gridRules(s);
  const chosen = chosenOf(geometry, { kind: 'lla', ratio: 64 / 3, path: 'block-absorbed' }, bindingBytes);
  if (!chosen) {
    s.notes.push(`long context: ${geometry.name} has no LLA at 21.33×`);
    return null;
  }
  const id = 'lla-21.33x/block-absorbed';
  s.progress('long context', id);
  const budget = of.budget.part(LONG_CONTEXT_SHARE * of.budget.seconds);
  const rules = { ...of, seed: s.o.seed, budget, memoryBytes: s.openBytes, stopped: s.stopped };
  return checkLongContext(s.device, id, chosen.c, rules);
}

async function capacitySection(s: Session): Promise<CapacityReport | null> {
  const { device, o, memoryBytes, bindingBytes, stopped } = s;
  const rules = {
    ...{ memoryBytes: memoryBytes ?? 0, bindingBytes, quick: o.quick, stopped },
    budget: s.partOf('capacity'),
    onAttempt: (id: string, batch: number) => s.progress('capacity', `${id}, batch ${batch}`),
  };
  if (device.description.software) {
    if (o.cli === null || process.platform !== 'linux') {
      s.notes.push('capacity on a software adapter needs Linux, where a process can be limited in memory');
      return null;
    }
    const contextTokens = SOFTWARE_CAPACITY_CONTEXT;
    const { attempt, tries, geometry, remove } = inProcesses(o.cli, {
      memoryBytes: rules.memoryBytes,
      contextTokens,
      seed: o.seed,
      ...(o.signal ? { signal: o.signal } : {}),
    });
    try {
      return await checkCapacity({ ...rules, geometry, contextTokens, attempt, tries });
    } finally {
      remove();
    }
  }
  if (memoryBytes === null) {
    s.notes.push('capacity was not checked: the memory of this device is not known; give it with --vram');
    return null;
  }
  const geometry = validationModel(false, o.model);
  const contextTokens = CAPACITY_CONTEXT;
  const attempt = onDevice(device, contextTokens, o.seed);
  return checkCapacity({ ...rules, memoryBytes: memoryBytes - RESERVE_BYTES, geometry, contextTokens, attempt });
}
