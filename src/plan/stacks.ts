/** Finding and reading stack files, and choosing whose kernels a plan is priced by. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Interval } from '../cost/evidence.js';
import type { DeviceSpec } from '../devices/catalogue.js';
import { UserError, show } from '../errors.js';
import { displayPath, readTextFile } from '../files.js';
import { issueWords, parseJson } from '../json.js';
import { lawsOf, type AttainableFile } from '../stacks/attainable.js';
import {
  SAME_GENERATION,
  servedBy,
  SMALL_OPERATIONS,
  STACK_CHOICES,
  STACK_LABELS,
  stackName,
  STACKS,
  type ServerFile,
  type StackTables,
} from '../stacks/serving.js';
import type { StackFile } from '../stacks/stack-schema.js';
import type { GpuSources } from '../stacks/gpu-pricer.js';

/** Tables and laws that come with the package. */
const BUNDLED = fileURLToPath(new URL('../../calibrations/', import.meta.url));
/** As in stacks/stack-schema.ts, which loads zod. */
const MAX_FILE_BYTES = 100_000;
const MAX_VALUES = 50_000;

/** Reads a stack file. @throws UserError when it is none */
async function readStackFile(path: string): Promise<StackTables> {
  const json = parseJson(readTextFile(path, 'stack file', MAX_FILE_BYTES), `stack file ${show(path)}`, {
    maxValues: MAX_VALUES,
    hint: 'write one with lla-sim import',
  });
  // The package's own files are checked by its tests.
  if (path.startsWith(BUNDLED))
    return { path: join('calibrations', 'stacks', basename(path)), file: json as StackFile };
  const { stackFileSchema } = await import('../stacks/stack-schema.js');
  const parsed = stackFileSchema.safeParse(json);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw new UserError(
      `${show(path)} is not a stack file of this version: ${issueWords(issue)}`,
      'write it again with lla-sim import',
    );
  }
  return { path: displayPath(path), file: parsed.data };
}

const basename = (path: string): string => path.slice(path.lastIndexOf('/') + 1);

/** The user's tables of a GPU and stack (./calibrations/stacks), else the package's; null where there are none. */
async function findStack(device: string, stack: string): Promise<StackTables | null> {
  for (const folder of [join(process.cwd(), 'calibrations', 'stacks'), join(BUNDLED, 'stacks')]) {
    const path = join(folder, `${device}-${stack}.json`);
    if (existsSync(path)) return readStackFile(path);
  }
  return null;
}

/** Whose kernels price a plan, and the sentences that a reader needs about the choice. */
export interface Chosen {
  /** As asked with `--stack`, or chosen: a stack's name, `lla-sim` or `attainable`. */
  readonly stack: string;
  /** Null for `lla-sim`: then the calibration prices. */
  readonly gpu: GpuSources | null;
}

/**
 * Chooses the stack: the first that serves the model and has tables of the GPU; for a model that nobody serves, the
 * first with tables; then the calibration of the device; then what tuned kernels reach.
 * @param asked `--stack`: a name, or the path of a stack file
 * @param model the name under which stacks list the model; null where it is not a preset
 * @param calibrated a calibration of this device that was found, by file name
 */
export async function chooseStack(
  asked: string | undefined,
  spec: DeviceSpec,
  model: string | null,
  calibrated: string | null,
  notes: string[],
): Promise<Chosen> {
  const gpu = async (stack: StackTables | null): Promise<GpuSources> => ({
    device: spec.id,
    stack,
    small: await smallOperations(spec.id),
    laws: lawsOf(bundled<AttainableFile>('attainable.json'), SAME_GENERATION[spec.id] ?? spec.id),
    server: serverOf(stack?.file.stack ?? null),
  });
  if (asked !== undefined) {
    if (asked in STACK_LABELS && !servedBy(model, asked))
      notes.push(`${label(asked)} does not run ${model ?? 'this model'}`);
    return askedStack(asked, spec, calibrated, gpu);
  }
  const have = new Map<string, StackTables>();
  const passedOver: string[] = [];
  for (const stack of STACKS) {
    const tables = await findStack(spec.id, stack);
    if (tables) have.set(stack, tables);
    else if (servedBy(model, stack)) passedOver.push(stack);
  }
  if (have.size === 0 && calibrated === null)
    notes.push(
      `nobody has published kernel times on ${spec.name}: times are what tuned kernels reach on ${measuredInstead(spec)}`,
    );
  else
    for (const stack of passedOver)
      notes.push(`${label(stack)} serves ${model}, but there are no kernel times of it on ${spec.name}`);
  const serving = STACKS.find((stack) => have.has(stack) && servedBy(model, stack));
  const chosen = serving ?? [...have.keys()][0];
  if (chosen === undefined) {
    if (calibrated !== null) return { stack: 'lla-sim', gpu: null };
    return { stack: 'attainable', gpu: await gpu(null) };
  }
  const tables = have.get(chosen)!;
  if (serving === undefined)
    notes.push(
      `no serving stack runs ${model ?? 'this model'}: kernels of ${stackName(tables.file)} price what they can do of it`,
    );
  if (calibrated !== null)
    notes.push(`${calibrated} was measured on this device and is not used: --stack lla-sim prices by it`);
  return { stack: chosen, gpu: await gpu(tables) };
}

/** The GPUs whose kernels tell what is attainable on one without tables. */
function measuredInstead({ id, vendor }: DeviceSpec): string {
  const sibling = SAME_GENERATION[id];
  if (sibling !== undefined) return `the ${sibling}, a GPU of the same generation`;
  return vendor === 'nvidia' ? 'other GPUs' : 'other GPUs, all of them by NVIDIA';
}

const label = (stack: string): string => STACK_LABELS[stack] ?? stack;

async function askedStack(
  asked: string,
  spec: DeviceSpec,
  calibrated: string | null,
  gpu: (stack: StackTables | null) => Promise<GpuSources>,
): Promise<Chosen> {
  if (asked === 'lla-sim') {
    if (calibrated === null)
      throw new UserError(
        `--stack lla-sim needs a calibration of ${spec.name}, and there is none`,
        'measure with lla-sim calibrate on that device, or leave --stack out',
      );
    return { stack: asked, gpu: null };
  }
  if (asked === 'attainable') return { stack: asked, gpu: { ...(await gpu(null)), small: null } };
  const isPath = /[/\\]|\.json$/i.test(asked);
  const tables = isPath ? await readStackFile(asked) : await findStack(spec.id, asked);
  if (!tables)
    throw new UserError(
      (STACK_CHOICES as readonly string[]).includes(asked)
        ? `there are no kernel times of ${label(asked)} on ${spec.name}`
        : `--stack knows no ${show(asked)}`,
      `write one of ${STACK_CHOICES.join(', ')}, or the path of a file that lla-sim import wrote`,
    );
  if (tables.file.device !== spec.id)
    throw new UserError(
      `${show(asked)} holds times of ${tables.file.device}, not of ${spec.id}`,
      `leave --stack out, or plan for --device ${tables.file.device}`,
    );
  return { stack: tables.file.stack, gpu: await gpu(tables) };
}

async function smallOperations(device: string): Promise<StackTables | null> {
  const measured = SMALL_OPERATIONS[device];
  return measured === undefined ? null : findStack(measured, 'vidur');
}

/** Fewer published rows of a stack than this tell less than those of all stacks together. */
const FEWEST_ROWS = 15;

/** What the server of a stack adds to a step; of all servers together where little or nothing is published of it. */
function serverOf(stack: string | null): Interval {
  const { servers } = bundled<ServerFile>('servers.json');
  const own = stack === null ? undefined : servers[stack];
  return (own && own.rows >= FEWEST_ROWS ? own : servers['all']!).secondsPerStep;
}

/** A file of the package. */
const bundled = <T>(name: string): T =>
  parseJson(readTextFile(join(BUNDLED, name), 'file of the package', MAX_FILE_BYTES), name, {
    maxValues: MAX_VALUES,
    hint: 'install lla-sim again',
  }) as T;
