/**
 * The calls of a prompt's prefill, each distinct one with its number: what prices and measures them need not list every chunk. Chunks of a
 * run, and runs of a prompt, take the same calls but for those that depend on where they stand (`placedOps`). So one of each kind is
 * listed, and of the others only these; pieces of latents that a run rebuilds are listed once for all that are alike.
 */
import { isLatent } from '../codecs/registry.js';
import { blocksOf } from '../geometry/geometry.js';
import type { Configuration, Op } from './configuration.js';
import { KERNELS, type KernelCall } from './kernels.js';
import { earlierOf, rebuiltOps } from './prefill-attend.js';
import { capturesOf, CAPTURING_KINDS, PREFILL_CHUNK_TOKENS, runsOf, shiftOf, type Chunk, type Pass, type WholePrompt } from './prefill-pass.js';
import { placedOps, runSchedule, type RunOptions } from './prefill.js';
import { forEachOp, layerCalls, type Collective } from './schedule.js';

/** Operations of one submission: a whole prompt would keep a device busy for longer than its watchdog allows. */
export const OPERATIONS_OF_A_SUBMISSION = 256;

/** How one prompt is taken in. */
export interface PromptPlan {
  readonly method: WholePrompt;
  /** At least 1. */
  readonly promptTokens: number;
  /** Tokens that are worked on at once; 2048 unless given. */
  readonly chunkTokens?: number;
}

export interface PrefillCalls {
  readonly calls: readonly { readonly call: KernelCall; readonly times: number }[];
  /** Exchanges between GPUs: none on one GPU. */
  readonly collectives: readonly Collective[];
  /** Submissions to the device. */
  readonly submissions: number;
}

/** Why prompts are not taken in so, or null. */
export function wholePromptObstacle({ eviction }: Pick<Configuration, 'eviction'>, method: WholePrompt): string | null {
  if (eviction?.policy === 'h2o') return 'H2O takes prompts in token by token';
  if (eviction !== null && CAPTURING_KINDS.some((kind) => kind === method)) return `${method} prefill does not evict`;
  return null;
}

/** Counts the calls that `prefillSchedule` lists for one prompt. */
export function prefillCalls(c: Configuration, { method, promptTokens, chunkTokens = PREFILL_CHUNK_TOKENS }: PromptPlan): PrefillCalls {
  const all = new Tally();
  const collectives: Collective[] = [];
  const kinds = new Map<string, { readonly common: Common; runs: number }>();
  const firsts = new Map<string, number>();
  const runs = runsOf(method, 0, promptTokens, chunkTokens);
  let submissions = 0;
  for (const [i, run] of runs.entries()) {
    const of: RunOptions = { batch: 1, chunkTokens, method, ends: i === runs.length - 1 };
    const standing = `${run.from > 0} ${shiftOf(c, run.from) > 0}`;
    // The first that stands so has least before it, which makes it the shortest to list.
    const from = firsts.get(standing) ?? run.from;
    firsts.set(standing, from);
    const key = `${standing} ${run.tokens} ${of.ends}`;
    const kind = kinds.get(key) ?? { common: commonOf(c, { from, tokens: run.tokens }, of), runs: 0 };
    kinds.set(key, kind);
    kind.runs++;
    const before = all.operations;
    for (const { chunk, count } of equalChunks({ from: 0, tokens: run.tokens }, chunkTokens)) {
      for (let n = 0; n < count; n++) addPlaced(all, c, run, of, { ...chunk, from: chunk.from + n * chunkTokens });
    }
    submissions += Math.ceil((all.operations - before + kind.common.tally.operations) / OPERATIONS_OF_A_SUBMISSION);
  }
  for (const { common, runs: times } of kinds.values()) {
    common.tally.addTo(all, times);
    for (const exchange of common.collectives) collectives.push({ ...exchange, calls: exchange.calls * times });
  }
  return { calls: all.list, collectives, submissions };
}

/** What runs of a kind have in common. */
interface Common {
  readonly tally: Tally;
  readonly collectives: readonly Collective[];
}

/** Everything in a run but what depends on where it and its chunks stand. */
function commonOf(c: Configuration, run: Chunk, of: RunOptions): Common {
  const tally = new Tally();
  const outside = runSchedule(c, run, { ...of, chunks: [] });
  const chunks = equalChunks({ from: 0, tokens: run.tokens }, of.chunkTokens);
  const others = chunks.reduce((sum, { count }) => sum - count, 1);
  forEachOp(c, outside, (op, calls) => tally.add(op, others * calls));
  for (const { chunk, count } of chunks) {
    forEachOp(c, runSchedule(c, run, { ...of, chunks: [chunk] }), (op, calls) => tally.add(op, count * calls));
    addPlaced(tally, c, run, of, chunk, -count);
  }
  return { tally, collectives: outside.collectives };
}

/** A stretch of tokens in chunks: the first of those that are as long as each other, and how many they are. */
function equalChunks({ from, tokens }: Chunk, each: number): { chunk: Chunk; count: number }[] {
  const count = Math.floor(tokens / each);
  const rest = tokens - count * each;
  return [...(count > 0 ? [{ chunk: { from, tokens: each }, count }] : []), ...(rest > 0 ? [{ chunk: { from: from + count * each, tokens: rest }, count: 1 }] : [])];
}

/** Adds what a chunk does because of where it stands. */
function addPlaced(tally: Tally, c: Configuration, run: Chunk, { batch, chunkTokens, method }: RunOptions, chunk: Chunk, times = 1): void {
  for (const again of isLatent(c.codec) ? [false, true] : [false]) {
    for (const block of blocksOf(c.geometry)) {
      const p: Pass = { c, block, run, batch, again, chunkTokens, captures: capturesOf(c, method) };
      const add = (ops: readonly Op[], each: number): void => ops.forEach((op) => tally.add(op, times * each * op.repeat * layerCalls(c, block, op.when)));
      add(placedOps(p, chunk, []), 1);
      for (const held of earlierOf(p)) for (const { chunk: piece, count } of equalChunks(held, chunkTokens)) add(rebuiltOps(p, chunk, piece), count);
    }
  }
}

/** Calls and their numbers. */
class Tally {
  /** Of all calls together. */
  operations = 0;
  private readonly known = new Map<string, { readonly call: KernelCall; times: number }>();

  add({ kernel, variant, shape }: KernelCall, times: number): void {
    let key = `${kernel}/${variant}`;
    for (const dim of KERNELS[kernel].dims) key += `,${shape[dim]}`;
    const same = this.known.get(key);
    if (same) same.times += times;
    else this.known.set(key, { call: { kernel, variant, shape }, times });
    this.operations += times;
  }

  addTo(other: Tally, each: number): void {
    for (const { call, times } of this.known.values()) other.add(call, each * times);
  }

  get list(): PrefillCalls['calls'] {
    return [...this.known.values()].filter(({ times }) => times !== 0);
  }
}
