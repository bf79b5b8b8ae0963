/** Buffers of a decoder beside weights and cache, of one GPU: the memory model sums them, the decoder has them. */
import type { Streams } from '../codecs/codec.js';
import { type CacheLayout } from '../codecs/layout.js';
import { pathSpec } from '../codecs/paths.js';
import {
  anchoredLoops,
  averagesLoops,
  codecSpec,
  isHybrid,
  isLatent,
  isPacked,
  streamsOf,
  laterWindowOf,
  layoutOf,
} from '../codecs/registry.js';
import { chosenKeys, choosesKeys } from '../codecs/flashloop.js';
import { ranksOfLoops } from '../codecs/hla.js';
import { pinnedSlots, pinsSinks, reindexes, weighsTokens } from '../eviction/policy.js';
import { blocksOf, keepsState, type LayerBlock } from '../geometry/geometry.js';
import { blockPlan } from '../../kernels/shared/block/block-absorbed.js';
import type { CacheMap } from './cache-map.js';
import {
  branchHeadsOf,
  headsOf,
  headsPerGpu,
  kvHeadsOf,
  latentsOf,
  restoredLoops,
  spansLoops,
  type Configuration,
} from './configuration.js';
import { branchWidth, evictingRows, meanRow, readsLatents, widestRanks, windowOf } from './facts.js';
import { blockBasisScalars } from '../../kernels/block_basis/terms.js';
import { blockComponents } from '../../kernels/block_vectors/terms.js';

/** Activations, accumulators and H2O's state are f32 or u32. */
export const WORD = 4;

/**
 * Kind of memory: latents, means and rows that wait for further loops, mass and positions of H2O, activations, or all
 * of these for prompts. `control` is memory that the model counts in its reserve: tables of angles, positions and
 * spans.
 */
export type BufferKind = 'in-flight' | 'eviction' | 'workspace' | 'prefill' | 'control';

/**
 * How a buffer of several sequences is bound: `whole` for all of them at once; `parts` from each part of the sequences
 * (cache-parts.ts) to the next; else it is a buffer for each part of a block's caches.
 */
type Binding = 'whole' | 'parts' | { readonly apartIn: LayerBlock['name'] };

export interface BufferRow {
  readonly kind: BufferKind;
  readonly label: string;
  /** Buffers of this row, with their numbers behind the label; undefined for one without a number. */
  readonly count: number | undefined;
  /** Bytes of each buffer: whatever the batch, and for every sequence. */
  readonly fixedBytes: number;
  readonly sequenceBytes: number;
  readonly binding: Binding;
  /** What it holds from the start, zeros unless given: angles of vectors of a width, or the numbers from 0. */
  readonly contents?: { readonly anglesOf: number; readonly back?: true } | 'numbers';
}

/** All cached tokens; those before a window of exact rows; those in it; or all of flashloop, how many are packed. */
export type CachedTokens = 'all' | 'older' | 'recent' | 'packed';
export const CACHED_TOKENS: readonly CachedTokens[] = ['all', 'older', 'recent', 'packed'];

/** Words of a query head's list of chosen keys: how many there are, then their positions. @param capacity slots */
export const listWords = (streams: Streams, capacity: number): number => 1 + chosenKeys(streams, capacity);

/** Last tokens before the current one whose rows of full width a window has. */
export const recentTokens = ({ geometry: { laterLoopsWindow }, codec }: Configuration): number =>
  laterLoopsWindow === undefined ? (codec.windowTokens ?? 0) : laterLoopsWindow - 1;

/** True where loops after the first attend to its rows, and to windows of their own. */
export const readsFirstRows = ({ geometry }: Configuration, { name }: LayerBlock): boolean =>
  name === 'core' && geometry.laterLoopsWindow !== undefined;

/** Spans of the sequences from one on: a part's own, as bindings begin at multiples that a few spans do not fill. */
export const spansFrom = (sequence: number, tokens: CachedTokens = 'all'): string =>
  `spans${tokens === 'all' ? '' : ` of ${tokens}`}${sequence === 0 ? '' : ` from ${sequence}`}`;

export const control = (label: string, words: number, contents?: BufferRow['contents']): BufferRow => ({
  kind: 'control',
  label,
  count: undefined,
  fixedBytes: WORD * words,
  sequenceBytes: 0,
  binding: 'whole',
  ...(contents ? { contents } : {}),
});

/** Which cached tokens operations on a block's caches read. */
function tokensRead(c: Configuration, block: LayerBlock): readonly CachedTokens[] {
  if (block.name === 'core' && isPacked(c.codec)) return ['packed'];
  return windowOf(c, block) > 0 || readsFirstRows(c, block) ? ['all', 'older', 'recent'] : ['all'];
}

/** Inputs of a step, which change from step to step, and tables of angles. */
export function stepControls(c: Configuration, batch: number, caches: CacheMap): BufferRow[] {
  const { slots } = caches;
  const g = c.geometry;
  const blocks = blocksOf(g);
  const spans = blocks.flatMap((block) =>
    caches
      .parts(block.name)
      .flatMap(({ first }) =>
        tokensRead(c, block).map((tokens) => control(spansFrom(first, tokens), 4 * (batch - first))),
      ),
  );
  const evicting = Math.max(1, ...blocks.map((block) => evictingRows(c, block)));
  const widths = new Set([g.headDim, ...blocks.map((block) => branchWidth(c, block)).filter((width) => width > 0)]);
  return [
    ...[...(g.exitGate ? ['exit'] : []), 'tokens', 'next tokens', 'positions', 'places'].map((label) =>
      control(label, batch),
    ),
    ...spans,
    ...(pinsSinks(c.eviction) && blocks.some((block) => readsLatents(c, block))
      ? [control('pinned positions', batch * slots.capacity)]
      : []),
    ...(weighsTokens(c.eviction) ? [control('moves', 2 * batch * evicting)] : []),
    control('draws', 2 * batch),
    ...(isHybrid(c.codec) ? [control('no means', g.kvHeads * g.headDim)] : []),
    ...[...widths].map((width) => control(`rotary table ${width}`, 0, { anglesOf: width })),
  ];
}

/** Bytes of all buffers of one kind: whatever the batch, and for every sequence. */
export function bytesOf(rows: readonly BufferRow[], kind: BufferKind): { fixed: number; sequence: number } {
  let fixed = 0;
  let sequence = 0;
  for (const row of rows) {
    if (row.kind !== kind) continue;
    const count = row.count ?? 1;
    fixed += count * row.fixedBytes;
    sequence += count * row.sequenceBytes;
  }
  return { fixed, sequence };
}

export const hasBranch = (c: Configuration): boolean => pathSpec(c.path).branch === true;
const rotates = (c: Configuration): boolean => pathSpec(c.path).rotated === true;
export const restores = (c: Configuration): boolean => pathSpec(c.path).restores === true;
/** Scalars of a layer's rotary key: made in the first loop, scored in each, cached in the last. */
export const branchKeyScalars = (c: Configuration): number => c.branch.width * branchHeadsOf(c);
/** Layers whose latents are in flight at once: all where a latent is complete after the last loop alone. */
export const accumulatingLayers = (c: Configuration): number => (spansLoops(c) ? c.geometry.layers : 1);

/** The layout of one GPU: heads divide (or replicate, down to one), everything else is whole. */
export function layoutPerGpu(c: Configuration): CacheLayout {
  const layout = layoutOf(c.geometry, c.codec, c.path, c.choice, c.branch);
  return c.gpus === 1 ? layout : layout.map((t) => ({ ...t, heads: headsPerGpu(t.heads, c.gpus) }));
}

/** Floats of a token's row of queries, keys and values, with a gate of heads and the queries of the rotary branch. */
export function packedRow(c: Configuration): number {
  const { headDim, attentionGate, valuesAreKeys } = c.geometry;
  const rows = (attentionGate ? 2 : 1) * headsOf(c) + (valuesAreKeys ? 1 : 2) * kvHeadsOf(c);
  return rows * headDim + (hasBranch(c) ? c.branch.width * headsOf(c) : 0);
}

/** Width of a query as attention reads it in the core: of latents where it is absorbed. */
export const queryWidth = (c: Configuration): number =>
  hasBranch(c) ? (c.codec.rankK ?? 0) + c.branch.width : c.geometry.headDim;

/** Latents in flight: of the first loop until they are written there, of the others in all layers. */
export function addHybridLatents(
  c: Configuration,
  tokens: number,
  add: (label: string, floats: number, count?: number, kind?: BufferKind) => void,
): void {
  const { first, shared } = ranksOfLoops(c.codec);
  add('first latents', tokens * (first.rankK + first.rankV));
  add('shared latents', tokens * (shared.rankK + shared.rankV), c.geometry.layers, 'in-flight');
}

/** Width of merged values before they are brought to full width. */
const mergedWidth = (c: Configuration): number => (rotates(c) ? widestRanks(c).rankV : (c.codec.rankV ?? 0));

/** True where attention reads latents and its output is projected to full width after the merge. */
const mergesLatents = (c: Configuration): boolean =>
  isLatent(c.codec) && pathSpec(c.path).latents === true && !c.materialised;

/** Sets of queries: a second one where StreamingLLM's sinks are scored by it, as their keys are cached rotated. */
function querySets(c: Configuration): 1 | 2 {
  if (!reindexes(c.eviction)) return 1;
  const { preludeLayers, codaLayers } = c.geometry;
  return !isLatent(c.codec) || restores(c) || hasBranch(c) || preludeLayers + codaLayers > 0 ? 2 : 1;
}

/**
 * Split partials. The split count times the rows never exceeds the target by more than one split a row (two where
 * pinned tokens have splits of their own), so the target's rows beside these are enough for every batch.
 */
function partials(c: Configuration, capacity: number): Pick<BufferRow, 'fixedBytes' | 'sequenceBytes'> {
  const { heads, kvHeads, headDim } = c.geometry;
  const row = Math.max(headDim, mergesLatents(c) ? mergedWidth(c) : 0) + 2;
  const group =
    (hasBranch(c) || rotates(c)) && codecSpec(c.codec).latentFor === 'all-heads'
      ? headsOf(c)
      : Math.ceil(heads / Math.min(kvHeads, heads));
  const splits = pinnedSlots(c.eviction, capacity) > 0 ? 2 : 1;
  return { fixedBytes: c.targetWorkgroups * group * row * WORD, sequenceBytes: splits * headsOf(c) * row * WORD };
}

/** Buffers of a decode step. @param capacity slots of a cached row, whole pages */
export function stepBuffers(c: Configuration, capacity: number): BufferRow[] {
  const g = c.geometry;
  const [heads, kvHeads, d] = [headsOf(c), kvHeadsOf(c), g.headDim];
  const mlp = Math.ceil(g.mlpHidden / c.gpus);
  const { rankK = 0, rankV = 0 } = c.codec;
  const rows: BufferRow[] = [];
  const add = (
    label: string,
    floats: number,
    count?: number,
    kind: BufferKind = 'workspace',
    binding: Binding = 'whole',
  ): void => void rows.push({ kind, label, count, fixedBytes: 0, sequenceBytes: WORD * floats, binding });
  const inParts = (label: string, floats: number, binding: Binding = 'parts'): void =>
    add(label, floats, undefined, 'workspace', binding);
  // The stream and its norm; beside an adapter the prelude's output and the loop's state, with stacks a state of
  // each, or that with which a loop began.
  add('residual', g.hidden, g.adapter ? 4 : keepsState(g) ? 3 : 2);
  add('projected', g.hidden);
  add('query key value', packedRow(c));
  add('queries', querySets(c) * heads * Math.max(d, queryWidth(c)));
  add('attention', heads * d);
  add('stats', heads * 2);
  if (mergesLatents(c)) add('merged', heads * mergedWidth(c));
  if (rotates(c)) add('latent queries', heads * widestRanks(c).rankK);
  if (codecSpec(c.codec).gatesState) {
    // States of all layers, and a gate.
    add('gated states', g.hidden, g.layers, 'in-flight');
    add('state gate', g.hidden);
  }
  if (laterWindowOf(g, c.codec) !== undefined) {
    // Attention over the window, until it is mixed with that over the first loop's rows; the current token's of these.
    add('first rows', meanRow(c), g.layers, 'in-flight');
    add('loop gates', heads);
    add('window attention', heads * d);
    add('window stats', heads * 2);
  }
  if (isLatent(c.codec) && c.codec.windowTokens) {
    // The part of attention that reads latents, until it is joined with that of exact rows.
    add('older', heads * d);
    add('older stats', heads * 2);
  }
  if (g.shiftsLoops && g.loops > 1) {
    add('token embedding', g.hidden);
    // After each loop but the last, of this token and the one before.
    add('loop states', 2 * g.hidden, g.loops - 1, 'in-flight');
  }
  add('gate up', 2 * mlp);
  add('activated', mlp);
  // Gathered from all GPUs for the choice of the token.
  add('logits', g.vocab);
  // Field by field: spreads after other fields make slow objects.
  const { fixedBytes, sequenceBytes } = partials(c, capacity);
  rows.push({ kind: 'workspace', label: 'partials', count: undefined, fixedBytes, sequenceBytes, binding: 'parts' });
  if (isHybrid(c.codec)) addHybridLatents(c, 1, add);
  else if (isLatent(c.codec)) {
    const [layers, kind] = [accumulatingLayers(c), spansLoops(c) ? 'in-flight' : 'workspace'] as const;
    add('latent key', latentsOf(c) * rankK, layers, kind);
    add('latent value', latentsOf(c) * rankV, layers, kind);
    if (hasBranch(c)) add('branch key', branchKeyScalars(c), layers, kind);
    if (restores(c))
      for (const what of ['keys', 'values']) add(`reconstructed ${what}`, restoredLoops(c) * kvHeads * d);
    if (pathSpec(c.path).blocks) {
      const ring = capacity - pinnedSlots(c.eviction, capacity);
      inParts('block vectors', heads * d * blockComponents(rankK));
      inParts('block basis', heads * blockBasisScalars(ring, rankK, blockPlan(g.rope.theta, d)));
    }
    // Rows of one layer and loop, in 16 bits.
    if (c.materialised)
      for (const what of ['keys', 'values'])
        inParts(`rebuilt ${what}`, (capacity * kvHeads * d) / 2, { apartIn: 'core' });
  }
  if (averagesLoops(c.codec)) add('mean rows', meanRow(c), g.layers, 'in-flight');
  const streams = streamsOf(g, c.codec);
  if (streams && choosesKeys(streams)) {
    // Of the last dense loop, until the last one: its output less that over chosen keys, their mass; which they are.
    add('second outputs', heads * (d + 1), g.layers, 'in-flight');
    add('chosen keys', heads * listWords(streams, capacity), g.layers, 'in-flight');
    add('chosen attention', heads * d);
    add('chosen stats', heads * 2);
    inParts('scores', heads * capacity);
  }
  const anchored = anchoredLoops(g, c.codec);
  if (anchored > 1) add('held rows', anchored * meanRow(c), g.layers, 'in-flight');
  if (weighsTokens(c.eviction)) {
    inParts('scores', heads * capacity);
    const layout = layoutPerGpu(c);
    for (const block of blocksOf(g)) {
      const own = layout.filter((t) => t.block === block.name);
      // Layers and loops that share any row evict together.
      const units = Math.min(...own.map((t) => t.layers)) * Math.min(...own.map((t) => t.loops));
      const [floats, apart] = [evictingRows(c, block) * capacity, { apartIn: block.name }];
      for (const what of ['mass', 'positions']) add(`kept ${what} ${block.name}`, floats, units, 'eviction', apart);
    }
  }
  return rows;
}
