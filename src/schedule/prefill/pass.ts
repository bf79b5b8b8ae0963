/** What the lists of a prefill's operations share: passes, chunks, and which rows a prompt's tokens attend to. */
import { pathSpec } from '../../codecs/paths.js';
import {
  averagesLoops,
  codecSpec,
  isAnchored,
  isLatent,
  isPacked,
  takesPositions,
  takesTwoPasses,
  takesWhole,
} from '../../codecs/registry.js';
import { keptTokens, pinnedSlots, reindexes, segmentsOf, weighsTokens } from '../../eviction/policy.js';
import type { LayerBlock } from '../../geometry/geometry.js';
import { storageOf, type Configuration, type When } from '../configuration.js';
import { closingTime } from '../facts.js';
import type { Op } from '../op.js';
import type { PromptStreams } from '../streams.js';
import { isQuantised } from '../../../kernels/spec.js';

/** Prompt tokens that are worked on at once. */
export const PREFILL_CHUNK_TOKENS = 2048;

/** Element type of the rows that attention of a prompt reads: that of the cache, 16 bits where it is quantised. */
export function prefillRowType(c: Pick<Configuration, 'codec' | 'choice'>): 'f16' | 'f32' | 'f8' {
  const storage = storageOf(c);
  return storage === 'f32' || storage === 'f8' ? storage : 'f16';
}

/** True where prompts attend to rows kept for a (layer, loop), as the cache has latents, codes, or fewer rows. */
export const keepsRows = (c: Configuration): boolean =>
  c.eviction !== null ||
  isLatent(c.codec) ||
  isPacked(c.codec) ||
  ['last-loop', 'anchor-loop'].includes(codecSpec(c.codec).closes) ||
  isQuantised(storageOf(c));

/** A stretch of tokens. */
export interface Chunk {
  readonly from: number;
  readonly tokens: number;
}

export const chunksOf = ({ from, tokens }: Chunk, each: number): Chunk[] =>
  Array.from({ length: Math.ceil(tokens / each) }, (_, i) => ({
    from: from + i * each,
    tokens: Math.min(each, tokens - i * each),
  }));

/** Kinds that keep the rows that pass 1 attends to, and encode latents from these (captured.ts). */
export const CAPTURING_KINDS = ['one-shot', 'by-layer'] as const;
export type CapturingKind = (typeof CAPTURING_KINDS)[number];

/** How prompts are prefilled: a run a chunk, or one run, with latents accumulated or encoded from captures. */
export type WholePrompt = CapturingKind | 'accumulated' | 'chunked';

/** How a prompt is taken: its method, and tokens worked on at once. */
export interface HowTaken {
  readonly method: WholePrompt;
  readonly chunkTokens: number;
}

/** The same, with the tokens of a run, which go through both passes together. */
interface Taken extends HowTaken {
  readonly runTokens: number;
}

/**
 * How a method takes a prompt. Where a token needs what tokens before it have after their last loop, each is a run of
 * its own, whatever the method; H2O still loads the cache in chunks. Where a prompt attends to exact rows alone, which
 * no cache keeps, it is one run.
 */
export function takenAs(c: Configuration, method: WholePrompt, chunkTokens: number): Taken {
  if (takesPositions(c.codec))
    return { method: 'chunked', chunkTokens: weighsTokens(c.eviction) ? chunkTokens : 1, runTokens: 1 };
  if (takesWhole(c.codec)) return { method: 'accumulated', chunkTokens, runTokens: Infinity };
  return { method, chunkTokens, runTokens: method === 'chunked' ? chunkTokens : Infinity };
}

/** What a run captures for its latents, unless they are accumulated, or for loops that are stored together. */
export const capturesOf = (c: Pick<Configuration, 'codec'>, method: WholePrompt): CapturingKind | undefined =>
  isAnchored(c.codec)
    ? 'by-layer'
    : isLatent(c.codec) && takesTwoPasses(c.codec)
      ? CAPTURING_KINDS.find((kind) => kind === method)
      : undefined;

/** What a run of a prompt needs room for. */
export interface PromptExtent {
  /** Tokens of the longest run. */
  readonly room: number;
  /** Rows that a run attends to at most: its tokens, under H2O those before it, too. */
  readonly rows: number;
  /** Tokens that are worked on at once. */
  readonly chunk: number;
  readonly captures: CapturingKind | undefined;
  /** Runs follow others, to which they also attend. */
  readonly carries: boolean;
}

/** The runs of a prompt, as positions. @param from tokens that were there already */
export const runsOf = ({ runTokens }: Taken, from: number, tokens: number): Chunk[] =>
  chunksOf({ from, tokens }, Math.min(runTokens, tokens));

/** A layer of one pass over a run. */
export interface Pass {
  readonly c: Configuration;
  readonly block: LayerBlock;
  readonly run: Chunk;
  /** Tokens that each cached row has room for. */
  readonly slots: number;
  /** Pass 2: attention reads rows that come from the cache. */
  readonly pass2: boolean;
  readonly chunkTokens: number;
  /** Where loops are streams: which of them. */
  readonly streams?: PromptStreams;
  /** Latents, or loops that are stored together, are encoded from captures, not as each loop's share comes. */
  readonly captures: CapturingKind | undefined;
}

/** Element type of the rows that attention reads: `one-shot` keeps everything in 32 bits. */
export const keptRowType = (
  c: Pick<Configuration, 'codec' | 'choice'>,
  captures?: CapturingKind,
): 'f16' | 'f32' | 'f8' => (captures === 'one-shot' ? 'f32' : prefillRowType(c));

/** True where the rows that attention reads are there before the pass: `one-shot` has reconstructed them all. */
export const readsReconstructions = ({ block, pass2, captures }: Pass): boolean =>
  pass2 && captures === 'one-shot' && block.name === 'core';

/** Operations of every chunk, one chunk after the other. */
export const over = (chunks: readonly Chunk[], list: (chunk: Chunk) => readonly Op[]): Op[] =>
  chunks.flatMap((chunk) => list(chunk).map((o) => ({ from: chunk.from, ...o })));

/** Stretches of positions in the ring, each in neighbouring slots. @param slots of a cached row */
function ringRuns(c: Configuration, { from, tokens }: Chunk, slots: number): Chunk[] {
  if (tokens === 0) return [];
  const ring = slots - pinnedSlots(c.eviction, slots);
  const own = Math.min(tokens, ring - (from % ring));
  if (own === tokens) return [{ from, tokens }];
  return [{ from, tokens: own }, ...ringRuns(c, { from: from + own, tokens: tokens - own }, slots)];
}

/** Tokens that the cache holds before a run, as stretches of neighbouring slots: pinned ones, then the ring's. */
export function cachedRuns({ c, run, slots }: Pick<Pass, 'c' | 'run' | 'slots'>): { pinned: Chunk[]; ring: Chunk[] } {
  const { pinned, ring } = segmentsOf(c.eviction, run.from);
  return {
    pinned: pinned > 0 ? [{ from: 0, tokens: pinned }] : [],
    ring: ringRuns(c, { from: run.from - ring, tokens: ring }, slots),
  };
}

/** H2O: cached tokens whose rows are loaded before those of a run; it attends to them and chooses from them. */
export const cachedBefore = (c: Configuration, run: Pick<Chunk, 'from'>): number =>
  weighsTokens(c.eviction) ? keptTokens(c.eviction, run.from) : 0;

/** The most rows that one of the runs attends to, without those that it reads from other buffers. */
export const rowsOfRuns = (c: Configuration, runs: readonly Chunk[]): number =>
  runs.reduce((most, run) => Math.max(most, cachedBefore(c, run) + run.tokens), 0);

/** True where a run's rows are kept in a cache of their own until both passes, which read them, are over. */
export const setsRowsAside = (c: Configuration): boolean =>
  c.eviction !== null && (takesTwoPasses(c.codec) || averagesLoops(c.codec));

/** True where a run's rows are stored beside the cache until it is known which stay (quantised rows, H2O). */
export const storesRun = (c: Configuration): boolean =>
  weighsTokens(c.eviction) && !setsRowsAside(c) && isQuantised(storageOf(c));

/** When a run's rows of a layer join a cache that is evicted from. Restored rows have one buffer a loop. */
export const joiningTime = (c: Configuration, block: LayerBlock): When =>
  pathSpec(c.path).restores ? 'always' : closingTime(c, block);

/** StreamingLLM: for tokens after the sinks, their position minus their place in a cache of `tokens`. */
export const shiftOf = (c: Configuration, tokens: number): number =>
  reindexes(c.eviction) ? tokens - keptTokens(c.eviction, tokens) : 0;

/** Tokens of a chunk that stay in the cache when its run has joined it, by their number in the run. */
export function keptIn({ c, run }: Pass, { from, tokens }: Chunk): Chunk[] {
  const { pinned, ring } = segmentsOf(c.eviction, run.from + run.tokens);
  const held = [
    { first: -run.from, end: pinned - run.from },
    { first: run.tokens - ring, end: run.tokens },
  ];
  return held
    .map(({ first, end }) => ({ from: Math.max(first, from), end: Math.min(end, from + tokens) }))
    .filter((stay) => stay.end > stay.from)
    .map((stay) => ({ from: stay.from, tokens: stay.end - stay.from }));
}
