/**
 * Capacity: fabricate the decode cache and push the batch until memory ends, as the paper does, and compare with the
 * predicted maximum. On a software adapter memory is the host's, so that every attempt is a process of its own
 * (`lla-sim run --vram`) whose address space is limited: drivers that do not look at a failed mapping end that process,
 * which is an end of memory like any other. On a GPU the device's own memory ends.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { clockNow } from '../../io/clock.js';
import { maxBatch, memoryModel, onGrid } from '../../cost/memory.js';
import { EXIT } from '../../errors.js';
import { evictionLabel } from '../../eviction/policy.js';
import { geometryFromConfig } from '../../geometry/hf-config.js';
import type { Geometry } from '../../geometry/geometry.js';
import { GpuError, type Device } from '../../gpu/index.js';
import type { Candidate } from '../../plan/types.js';
import { isAlive } from '../../io/process-alive.js';
import { OUT_OF_TIME, type Budget } from '../../io/budget.js';
import { stepOfAll, withDecoder, type NotRun } from '../decoding.js';
import { chosenOf, type Chosen } from '../grid.js';

export interface CapacityRow {
  readonly id: string;
  readonly contextTokens: number;
  readonly predicted: { readonly exact: number; readonly onGrid: number };
  /** Largest batch that decoded a step, and the smallest that did not. */
  readonly reached: { readonly exact: number; readonly onGrid: number; readonly failedAt: number };
  /** reached / predicted − 1. */
  readonly error: number;
}

export interface CapacityReport {
  readonly model: string;
  readonly memoryBytes: number;
  readonly rows: readonly CapacityRow[];
  /**
   * The decoder's refusal at a batch that memory would hold, or the end of the time: then neither the prediction nor
   * the end of memory was tested.
   */
  readonly notRun: readonly NotRun[];
}

/**
 * Whether a batch decodes a step over a full cache.
 * @throws OutOfTime where that takes longer than so many seconds, and could be ended
 */
export type Attempt = (of: Chosen, batch: number, mostSeconds: number) => Promise<boolean>;

export const CAPACITY_TOLERANCE = 0.02;
/** The end of memory is found to this share of the batch. */
const RESOLUTION = 0.005;
const PAGE_TOKENS = 32;

/** full, 4x, 21.33x and an evicted cache. */
const CHOICES = [
  { kind: 'full', ratio: null, path: 'full' },
  { kind: 'lla', ratio: 4, path: 'absorbed' },
  { kind: 'lla', ratio: 64 / 3, path: 'absorbed' },
  { kind: 'full', ratio: null, path: 'full', eviction: 'streaming:4+508' },
] as const;

/** A shape whose caches are a few large buffers, as those of real models: allocators round small ones up. */
const CAPACITY_CONFIG = {
  model_type: 'ouro',
  _name_or_path: 'capacity-test',
  num_hidden_layers: 8,
  total_ut_steps: 2,
  num_attention_heads: 4,
  num_key_value_heads: 4,
  head_dim: 64,
  hidden_size: 256,
  intermediate_size: 512,
  vocab_size: 1024,
  max_position_embeddings: 65_536,
};

/** The largest batch that works: from the prediction outwards, then by halves. @param works false from some batch on */
export async function largestBatch(
  predicted: number,
  works: (batch: number) => Promise<boolean>,
): Promise<{ exact: number; failedAt: number }> {
  let [good, bad] = [0, Infinity];
  let stride = Math.max(1, Math.ceil(CAPACITY_TOLERANCE * predicted));
  let at = Math.max(1, predicted);
  while (good === 0 || bad === Infinity) {
    if (await works(at)) good = Math.max(good, at);
    else bad = Math.min(bad, at);
    if (bad === 1) return { exact: 0, failedAt: 1 };
    if (good > 0 && bad < Infinity) break;
    at = good > 0 ? good + stride : Math.max(1, bad - stride);
    stride *= 4;
  }
  while (bad - good > Math.max(1, RESOLUTION * good)) {
    const middle = Math.floor((good + bad) / 2);
    if (await works(middle)) good = middle;
    else bad = middle;
  }
  return { exact: good, failedAt: bad };
}

export interface CapacityRules {
  readonly geometry: Geometry;
  readonly contextTokens: number;
  /** Bytes that the decoder may take. */
  readonly memoryBytes: number;
  readonly bindingBytes: number;
  readonly quick: boolean;
  readonly attempt: Attempt;
  /** A batch fits if it does in one of so many attempts; 1 unless given. */
  readonly tries?: number;
  readonly budget: Budget;
  readonly onAttempt?: (id: string, batch: number) => void;
  readonly stopped?: () => boolean;
}

/** Kind of a piece of the budget. */
const ATTEMPT = 'capacity attempt';
export class OutOfTime extends Error {}

/** Whether a batch works in one of so many tries. */
async function triedBy({ attempt, budget, tries = 1 }: CapacityRules, of: Chosen, batch: number): Promise<boolean> {
  for (let i = 0; i < tries; i++) {
    if (!budget.fits(ATTEMPT)) throw new OutOfTime();
    if (await budget.piece(ATTEMPT, () => attempt(of, batch, budget.left))) return true;
  }
  return false;
}

/** Compares the prediction with the end of memory, codec by codec. */
export async function checkCapacity(rules: CapacityRules): Promise<CapacityReport> {
  const { geometry, contextTokens, memoryBytes } = rules;
  const rows: CapacityRow[] = [];
  const notRun: NotRun[] = [];
  for (const choice of rules.quick ? CHOICES.slice(0, 1) : CHOICES) {
    const chosen = chosenOf(geometry, choice, rules.bindingBytes);
    if (!chosen || rules.stopped?.()) continue;
    const { id, c } = chosen;
    const predicted = maxBatch(memoryModel(c, contextTokens, PAGE_TOKENS), memoryBytes);
    let decoded = 0;
    try {
      const { exact, failedAt } = await largestBatch(predicted, async (batch) => {
        rules.onAttempt?.(id, batch);
        const works = await triedBy(rules, chosen, batch);
        if (works) decoded = Math.max(decoded, batch);
        return works;
      });
      rows.push({
        id,
        contextTokens,
        predicted: { exact: predicted, onGrid: onGrid(predicted) },
        reached: { exact, onGrid: onGrid(exact), failedAt },
        error: exact / predicted - 1,
      });
    } catch (error) {
      const isRefused = error instanceof GpuError && error.fault === 'unsupported';
      if (!isRefused && !(error instanceof OutOfTime)) throw error;
      const reason = isRefused
        ? `${error.message} (${predicted} sequences were predicted, ` +
          `${decoded === 0 ? 'no batch' : `a batch of ${decoded}`} decoded a step)`
        : OUT_OF_TIME;
      notRun.push({ id, reason });
    }
  }
  return { model: geometry.name, memoryBytes, rows, notRun };
}

/** Within 2 %, and equal on the grid that capacity tests climb. */
export const capacityHolds = (row: CapacityRow): boolean =>
  Math.abs(row.error) <= CAPACITY_TOLERANCE && row.predicted.onGrid === row.reached.onGrid;

/** The end of a device's own memory. */
export function onDevice(device: Device, contextTokens: number, seed: number): Attempt {
  return async ({ c }, batch) => {
    try {
      await withDecoder(device, c, seed, { batch, contextTokens, pageTokens: PAGE_TOKENS }, async (decoder) => {
        await decoder.fillCache(contextTokens - 1);
        await stepOfAll(decoder);
      });
      return true;
    } catch (error) {
      if (error instanceof GpuError && error.fault === 'out-of-memory') return false;
      throw error;
    }
  };
}

const flags = (values: Readonly<Record<string, string | number>>): string[] =>
  Object.entries(values).flatMap(([name, value]) => [`--${name}`, String(value)]);

const choiceFlags = ({ codec, path, materialised, eviction }: Candidate): string[] =>
  flags({
    codec: codec.kind,
    ...(codec.rankK === undefined ? {} : { ranks: `${codec.rankK}/${codec.rankV}` }),
    path: materialised ? 'materialised' : path,
    eviction: evictionLabel(eviction),
  });

/** Runs the program, for so many seconds at most; null where a signal ended it. */
function child(
  cli: string,
  args: readonly string[],
  mostSeconds: number,
  signal?: AbortSignal,
): Promise<{ code: number | null; text: string }> {
  return new Promise((resolve, reject) => {
    // Every thread's heap of glibc reserves 64 MiB of address space, touched or not; one heap for all does not.
    const process_ = spawn(process.execPath, [cli, ...args], {
      // It notices by the channel that this process has died (cli.ts).
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
      killSignal: 'SIGKILL',
      ...(mostSeconds < Infinity ? { timeout: Math.ceil(1000 * mostSeconds) } : {}),
      env: { ...process.env, MALLOC_ARENA_MAX: '1' },
      ...(signal ? { signal } : {}),
    });
    let text = '';
    for (const stream of [process_.stdout, process_.stderr])
      stream?.on('data', (chunk: Buffer) => (text = (text + chunk.toString('utf8')).slice(-4000)));
    process_.on('error', reject);
    process_.on('close', (code) => resolve({ code, text }));
  });
}

/**
 * Whether a decoder that has ended ran: not where memory ended, by its exit code or by a signal.
 * @param late its time was over
 * @throws OutOfTime where it was ended for that; GpuError for what the device does not have
 */
export function hasRun(
  { code, text }: { readonly code: number | null; readonly text: string },
  late: boolean,
): boolean {
  if (code === 0) return true;
  if (code === null && late) throw new OutOfTime();
  // A signal: the driver used memory that it could not map.
  if (code === null || code === EXIT.noSolution || code > 128) return false;
  if (code === EXIT.badInput) throw new GpuError('unsupported', text.trim());
  throw new Error(`lla-sim run ended with exit code ${code}: ${text}`);
}

/** What a process maps for itself differs by some MiB from one to the next. */
const TRIES = 3;

/** Folders of model files, one a validation; the number of its process follows. */
const FOLDER = 'lla-sim-capacity-';

/** Removes the folders of validations that were killed. */
function removeDeadFolders(): void {
  for (const name of readdirSync(tmpdir())) {
    const pid = name.startsWith(FOLDER) ? Number(name.slice(FOLDER.length).split('-')[0]) : NaN;
    if (Number.isInteger(pid) && !isAlive(pid)) rmSync(join(tmpdir(), name), { recursive: true, force: true });
  }
}

/**
 * The end of memory of a process that may map this many bytes beyond those of driver and program.
 * @param cli the program, as node runs it
 * @returns the attempt, the model that it decodes, and what removes the model's file
 */
export function inProcesses(
  cli: string,
  rules: Pick<CapacityRules, 'memoryBytes' | 'contextTokens'> & {
    readonly seed: number;
    readonly signal?: AbortSignal;
  },
): { attempt: Attempt; tries: number; geometry: Geometry; remove: () => void } {
  removeDeadFolders();
  const folder = mkdtempSync(join(tmpdir(), `${FOLDER}${process.pid}-`));
  const config = join(folder, 'config.json');
  writeFileSync(config, JSON.stringify(CAPACITY_CONFIG));
  const { memoryBytes, contextTokens, seed } = rules;
  /** Candidates whose kernels have been compiled, and are in the driver's cache on disk. */
  const compiled = new Set<string>();
  return {
    geometry: geometryFromConfig(CAPACITY_CONFIG, CAPACITY_CONFIG._name_or_path),
    tries: TRIES,
    remove: () => rmSync(folder, { recursive: true, force: true }),
    attempt: async ({ candidate }, batch, mostSeconds) => {
      const settings = { fill: contextTokens - 1, ctx: contextTokens, 'max-tokens': 1, batch, seed, format: 'json' };
      const choice = choiceFlags(candidate);
      const args = ['run', '--model', config, ...choice, ...flags(settings), '--quiet'];
      const began = clockNow();
      // Compiling kernels maps tens of MiB that running them does not: it is done before, without the limit.
      const id = choice.join(' ');
      if (!compiled.has(id)) await child(cli, args, mostSeconds, rules.signal);
      compiled.add(id);
      const limited = [...args, '--vram', `${memoryBytes}B`];
      const left = Math.max(1e-3, mostSeconds - (clockNow() - began));
      return hasRun(await child(cli, limited, left, rules.signal), clockNow() - began >= mostSeconds);
    },
  };
}
