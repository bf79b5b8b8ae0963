/**
 * The calls of a prompt's prefill, each distinct one with its number, so that pricing and measuring need not list every
 * chunk. Chunks of a run, and runs of a prompt, have the same calls, except those that depend on position
 * (`placedOps`). So one of each kind is listed whole, and of the others only the dependent calls. Equal pieces of
 * rebuilt latents are listed once.
 */
import { isPacked, takesTwoPasses } from '../../codecs/registry.js';
import { weighsTokens } from '../../eviction/policy.js';
import { blocksOf, type LayerBlock } from '../../geometry/geometry.js';
import type { Configuration } from '../configuration.js';
import { readsLatents } from '../facts.js';
import type { Op } from '../op.js';
import { KERNELS, type KernelCall } from '../../../kernels/registry.js';
import { earlierOf, rebuiltOps } from './attend.js';
import {
  capturesOf,
  cachedBefore,
  PREFILL_CHUNK_TOKENS,
  shiftOf,
  takenAs,
  type Chunk,
  type Pass,
  type HowTaken,
  type WholePrompt,
} from './pass.js';
import { forEachOp, timesOf } from '../expand.js';
import { keptSlots, placedOps, prefillSchedule, runSchedule } from './prefill.js';
import type { Collective } from '../schedule.js';

/** Operations of one submission: a whole prompt would keep a device busy for longer than its watchdog allows. */
export const OPERATIONS_OF_A_SUBMISSION = 256;

/** Prompts of as many chunks are listed whole: that is faster. */
const FEW_CHUNKS = 2;

/**
 * Number of distinct chunk positions. In longer prompts neighbouring chunks count as the middle one. Attention's time
 * is proportional to the tokens before a chunk, so the error is about half a chunk in a thousand.
 */
const MOST_PLACES = 512;

/**
 * Maps calls of a prompt to what a server runs. `attend_prefill` is causal: its queries attend to the context, and on
 * average to half of themselves. Where prompts are read in both directions every query attends to all of the prompt, so
 * the context is that less half of the queries.
 */
export function asServersRead(c: Configuration, promptTokens: number): <C extends KernelCall>(call: C) => C {
  if (!c.geometry.promptsBothWays) return (call) => call;
  return (call) => {
    if (call.kernel !== 'attend_prefill') return call;
    const { context = 0, queries = 0 } = call.shape;
    return { ...call, shape: { ...call.shape, context: Math.max(context, Math.round(promptTokens - queries / 2)) } };
  };
}

/** How one prompt is prefilled. */
export interface PromptPlan {
  readonly method: WholePrompt;
  /** At least 1. */
  readonly promptTokens: number;
  /** Tokens that are worked on at once; 2048 unless given. */
  readonly chunkTokens?: number;
}

/** What a prefill costs beside its calls. */
export interface PrefillFrame {
  /** Exchanges between GPUs: none on one GPU. */
  readonly collectives: readonly Collective[];
  /** Submissions to the device, about: an operation may be several dispatches. */
  readonly submissions: number;
}

/** Visits the calls that `prefillSchedule` lists for one prompt with the number of times that they run, in no order. */
export function forEachPrefillCall(
  c: Configuration,
  { promptTokens, ...asked }: PromptPlan,
  visit: (call: KernelCall, times: number) => void,
): PrefillFrame {
  const { method, chunkTokens, runTokens } = takenAs(c, asked.method, asked.chunkTokens ?? PREFILL_CHUNK_TOKENS);
  const runs = equalRuns(c, promptTokens, Math.min(runTokens, promptTokens));
  let operations = 0;
  const visited = (call: KernelCall, times: number): void => {
    operations += times;
    visit(call, times);
  };
  const whole = (chunk: number): readonly Collective[] => {
    const listed = prefillSchedule(c, promptTokens, chunk, method);
    forEachOp(c, listed, visited);
    return listed.collectives;
  };
  // Loops of packed rows run on different tokens: they are listed whole, in larger chunks where there are very many.
  const collectives = isPacked(c.codec)
    ? whole(Math.max(chunkTokens, Math.ceil(promptTokens / MOST_PLACES)))
    : promptTokens <= FEW_CHUNKS * Math.min(chunkTokens, runTokens)
      ? whole(chunkTokens)
      : visitKinds(c, runs, { chunkTokens, method }, visited);
  const runCount = runs.reduce((sum, { count }) => sum + count, 0);
  return { collectives, submissions: Math.max(runCount, Math.ceil(operations / OPERATIONS_OF_A_SUBMISSION)) };
}

/** Neighbouring runs with the same list of operations, each after the one before it. */
interface EqualRuns {
  /** The first of them. */
  readonly run: Chunk;
  readonly count: number;
  readonly ends: boolean;
  /** What of a run's position changes its list of operations, beside its distance from the prompt's beginning. */
  readonly standing: string;
}

/** The runs of a prompt, counted: a prompt of 2^30 tokens in chunks of one token has as many. */
function equalRuns(c: Configuration, promptTokens: number, each: number): EqualRuns[] {
  const [whole, all] = [Math.floor(promptTokens / each), Math.ceil(promptTokens / each)];
  const shifted = firstWhere(all, (i) => shiftOf(c, i * each) > 0);
  const bounds = [...new Set([0, 1, shifted, whole, all - 1, all])].sort((a, b) => a - b);
  return bounds.slice(0, -1).map((first, i) => {
    const from = first * each;
    const run = { from, tokens: Math.min(each, promptTokens - from) };
    return {
      run,
      count: (bounds[i + 1] as number) - first,
      ends: first === all - 1,
      standing: `${from > 0} ${shiftOf(c, from) > 0}`,
    };
  });
}

/** The least whole number below `count` from which a condition holds on; `count` where it never holds. */
function firstWhere(count: number, is: (i: number) => boolean): number {
  let [low, high] = [0, count];
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (is(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

function visitKinds(
  c: Configuration,
  runs: readonly EqualRuns[],
  how: HowTaken,
  visit: (call: KernelCall, times: number) => void,
): readonly Collective[] {
  const { chunkTokens } = how;
  const counted = new Counted(c, how);
  const kinds = new Tally<Pick<EqualRuns, 'run' | 'ends'>>();
  const firsts = new Map<string, number>();
  const chunkCount = runs.reduce((sum, { run, count }) => sum + count * Math.ceil(run.tokens / chunkTokens), 0);
  const each = Math.ceil(chunkCount / MOST_PLACES);
  for (const { run, count, ends, standing } of runs) {
    // The first of these runs has the fewest tokens before it, so its list is the shortest.
    const from = firsts.get(standing) ?? run.from;
    firsts.set(standing, from);
    kinds.add(`${standing} ${run.tokens} ${ends}`, count, () => ({ run: { from, tokens: run.tokens }, ends }));
    for (let first = 0; first < count; first += each) {
      const neighbours = Math.min(each, count - first);
      const middle = { ...run, from: run.from + middleOf(first, neighbours) * run.tokens };
      for (const { chunk, count: chunks } of equalChunks({ from: 0, tokens: run.tokens }, chunkTokens)) {
        for (let n = 0; n < chunks; n += each) {
          const alike = Math.min(each, chunks - n);
          counted.addPlaced(
            middle,
            { ...chunk, from: chunk.from + middleOf(n, alike) * chunkTokens },
            neighbours * alike,
          );
        }
      }
    }
  }
  const collectives = kinds.remaining.flatMap(({ one: { run, ends }, times }) =>
    counted.addCommon(run, ends, times).map((exchange) => ({ ...exchange, calls: exchange.calls * times })),
  );
  counted.visit(visit);
  return collectives;
}

const middleOf = (first: number, count: number): number => first + ((count - 1) >> 1);

/** A stretch of tokens in chunks: the first of each group of equal length, and the size of the group. */
function equalChunks({ from, tokens }: Chunk, each: number): { chunk: Chunk; count: number }[] {
  const count = Math.floor(tokens / each);
  const rest = tokens - count * each;
  return [
    ...(count > 0 ? [{ chunk: { from, tokens: each }, count }] : []),
    ...(rest > 0 ? [{ chunk: { from: from + count * each, tokens: rest }, count: 1 }] : []),
  ];
}

/** Equal things, by their key, with their number. */
class Tally<T> {
  private readonly known = new Map<string, { readonly one: T; times: number }>();

  add(key: string, times: number, of: () => T): void {
    const same = this.known.get(key);
    if (same) same.times += times;
    else this.known.set(key, { one: of(), times });
  }

  /** What remains after others are subtracted. */
  get remaining(): { readonly one: T; readonly times: number }[] {
    return [...this.known.values()].filter(({ times }) => times !== 0);
  }
}

/** The calls of runs: lists of operations that depend on the position of a chunk are kept apart, as most are equal. */
class Counted {
  private readonly calls = new Tally<KernelCall>();
  private readonly lists = new Tally<{ readonly block: LayerBlock; readonly ops: readonly Op[] }>();

  constructor(
    private readonly c: Configuration,
    private readonly how: HowTaken,
  ) {}

  private addCall({ kernel, variant, shape }: KernelCall, times: number): void {
    let key = `${kernel}/${variant}`;
    for (const dim of KERNELS[kernel].dims) key += `,${shape[dim]}`;
    this.calls.add(key, times, () => ({ kernel, variant, shape }));
  }

  /** Adds everything in a run except what depends on its position and that of its chunks. */
  addCommon(run: Chunk, ends: boolean, times: number): readonly Collective[] {
    const { c, how } = this;
    const listed = (chunks: readonly Chunk[], count: number): readonly Collective[] => {
      const own = runSchedule(c, run, { ...how, ends, chunks });
      forEachOp(c, own, (op, calls) => this.addCall(op, count * times * calls));
      return own.collectives;
    };
    const chunks = equalChunks({ from: 0, tokens: run.tokens }, how.chunkTokens);
    // Operations outside chunks are listed with each kind of chunk, and run once.
    const surplus = chunks.reduce((sum, { count }) => sum + count, -1);
    if (surplus > 0) listed([], -surplus);
    let collectives: readonly Collective[] = [];
    for (const { chunk, count } of chunks) {
      collectives = listed([chunk], count);
      this.addPlaced(run, chunk, -count * times);
    }
    return collectives;
  }

  /** Operations of a chunk that depend on its position. */
  addPlaced(run: Chunk, chunk: Chunk, times: number): void {
    const { c, lists } = this;
    const { chunkTokens, method } = this.how;
    const common = { c, run, slots: keptSlots(c), chunkTokens, captures: capturesOf(c, method) };
    const shifted = shiftOf(c, run.from) > 0;
    for (const pass2 of takesTwoPasses(c.codec) ? [false, true] : [false]) {
      for (const block of blocksOf(c.geometry)) {
        const p: Pass = { ...common, block, pass2 };
        const kind = `${pass2} ${block.name} ${chunk.tokens}`;
        // A chunk's own operations depend on the run before it where it reads rows there, or evicts.
        const standing = weighsTokens(c.eviction)
          ? `${cachedBefore(c, run)} ${run.from % c.eviction.recentTokens}`
          : c.eviction === null && readsLatents(c, block)
            ? run.from > 0
            : run.from;
        lists.add(`${kind} ${standing} ${chunk.from}`, times, () => ({ block, ops: placedOps(p, chunk, []) }));
        for (const [stretch, held] of earlierOf(p).entries()) {
          for (const { chunk: piece, count } of equalChunks(held, chunkTokens)) {
            const alike = `${kind} ${stretch} ${shifted} piece ${piece.tokens}`;
            lists.add(alike, times * count, () => ({ block, ops: rebuiltOps(p, chunk, piece) }));
          }
        }
      }
    }
  }

  visit(visit: (call: KernelCall, times: number) => void): void {
    for (const { one, times } of this.lists.remaining)
      for (const op of one.ops) this.addCall(op, times * timesOf(this.c, one.block, op));
    for (const { one, times } of this.calls.remaining) visit(one, times);
  }
}
