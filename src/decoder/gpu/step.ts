/** The machine of decode steps: a row a sequence, and the few numbers that change from step to step. */
import type { Span } from '../../../kernels/options.js';
import { latentOfLoop, ranksOfLoops } from '../../codecs/hla.js';
import { isHybrid } from '../../codecs/registry.js';
import { pinsSinks, weighsTokens } from '../../eviction/policy.js';
import { blocksOf, type LayerBlock } from '../../geometry/geometry.js';
import {
  bufferOf,
  GpuError,
  partOf,
  type Buffer,
  type BufferPlan,
  type Device,
  type OperationPlan,
} from '../../gpu/index.js';
import { rotaryTable } from '../../gpu/rotary.js';
import { queryWidth, stepBuffers, type BufferRow } from '../../schedule/buffers.js';
import { branchWidth, evictingRows, readsLatents, windowOf } from '../../schedule/eviction-ops.js';
import type { Place, Visit } from '../../schedule/expand.js';
import type { Configuration } from '../../schedule/schedule.js';
import type { CodecAxis } from '../tensors.js';
import type { Allocations } from './allocations.js';
import { divideSpan, spanOf, type CachePart, type CacheRole, type Caches } from './caches.js';
import { Machine, partSuffix, placed, type Target, type Vectors } from './machine.js';

export class DecodeStep extends Machine {
  /** The largest cache of a sequence in the planned steps. */
  longest: Span = this.spanAt(this.contextTokens);

  /** The cached tokens of a sequence of `length`. */
  spanAt(length: number): Span {
    return spanOf(this.c.eviction, this.caches.slots, length);
  }

  buffer(label: string): Buffer {
    return this.allocations.get(label);
  }

  firstRow(): number {
    return 0;
  }

  firstPosition(): number {
    return 0;
  }

  get lastRows(): Vectors {
    return { offset: 0, stride: this.c.geometry.hidden };
  }

  target(visit: Visit, role: CacheRole, loop?: number, slots = this.caches.slots): Target {
    const { capacity, pinned, ring, sinks } = slots;
    const { index, first } = this.partOf(visit);
    return {
      cache: this.caches.buffer(role, placed(visit), loop, index),
      options: { capacity, pinned, ring, sinks, firstStart: first },
      row: first,
    };
  }

  recentTarget(visit: Visit, role: CacheRole): Target {
    return this.target(visit, role, undefined, this.caches.recentSlots);
  }

  /** The sequences that an operation on a block's caches works on. */
  partOf({ part, place }: Visit): CachePart {
    const parts = this.caches.parts(place?.block.name ?? 'core');
    return parts[part] ?? { index: 0, first: 0, count: this.batch };
  }

  /** First sequences of the parts of all caches. */
  get partStarts(): readonly number[] {
    return [
      ...new Set(blocksOf(this.c.geometry).flatMap((block) => this.caches.parts(block.name).map(({ first }) => first))),
    ];
  }

  /**
   * Queries from a part's first sequence on, which has `floats` of them: a second set lies behind those of all
   * sequences.
   */
  queries({ first }: CachePart, floats: number): Buffer {
    const buffer = this.buffer('queries');
    return partOf(buffer, 4 * floats * first, buffer.bytes - 4 * floats * first);
  }

  /** Split partials of a planned attention or merge: each part has been merged before the next one writes its own. */
  partials(planned: OperationPlan): Buffer {
    return partOf(this.buffer('partials'), 0, bufferOf(planned, 'partials').bytes);
  }

  /** Which of the cached tokens an operation on a block's caches reads. */
  tokensOf({ op, place }: Visit): CachedTokens {
    if (LOOP_WINDOW.includes(op.label)) return 'recent';
    if (!place || windowOf(this.c, place.block) === 0) return 'all';
    return op.label === RECENT ? 'recent' : 'older';
  }

  /** Those of each sequence of a part. */
  spans({ first }: CachePart, visit: Visit): Buffer {
    return this.buffer(spansFrom(first, this.tokensOf(visit)));
  }

  /** Cached rows of a place, of a part's sequences. */
  cached(visit: Visit, role: CacheRole): Buffer {
    const { block, loop } = placed(visit);
    const first = readsFirstRows(this.c, block) && this.tokensOf(visit) === 'all';
    return this.caches.buffer(role, placed(visit), first ? 0 : loop, this.partOf(visit).index);
  }

  /** What every planned attention over cached tokens binds beside queries and rows. */
  attends(visit: Visit, planned: OperationPlan): Record<'partials' | 'spans' | 'scores', Buffer> {
    const part = this.partOf(visit);
    return { partials: this.partials(planned), spans: this.spans(part, visit), scores: this.scores(part) };
  }

  /** The most of a sequence. */
  longestOf(visit: Visit): Span {
    const tokens = this.tokensOf(visit);
    return tokens === 'all' ? this.longest : divideSpan(this.longest, recentTokens(this.c))[tokens];
  }

  /** A table that comes with a plan, written when it is first asked for. */
  async table(label: string, planned: BufferPlan): Promise<Buffer> {
    if (this.allocations.has(label)) return this.buffer(label);
    const buffer = await this.allocations.make(label, 'control', planned.bytes);
    await this.device.write(buffer, planned.data?.() as Float32Array<ArrayBuffer>);
    return buffer;
  }

  /** Positions of a set of queries: StreamingLLM's second one is at its places inside the cache. */
  positionsOf(set: 0 | 1): { positions: Buffer } {
    return { positions: this.buffer(set === 0 ? 'positions' : 'places') };
  }

  /** Width of the latents of an axis that a loop reads. */
  readRank(loop: number, axis: CodecAxis): number {
    if (!isHybrid(this.c.codec)) return this.rankOf(axis);
    const { rankK, rankV } = ranksOfLoops(this.c.codec)[latentOfLoop(loop)];
    return axis === 'key' ? rankK : rankV;
  }

  /** Matrices of a loop that bring queries to latents, or latents of values to heads. */
  upMap({ layer, loop }: Place, axis: CodecAxis): Promise<Buffer> {
    if (isHybrid(this.c.codec)) return this.weights.hybridMap(layer, loop, axis);
    return axis === 'key' ? this.weights.upRows(layer, loop, axis) : this.weights.upColumns(layer, loop, axis);
  }

  /** Means of a loop's values; rotated latents have none. */
  valueMeans({ layer, loop }: Place): Promise<Buffer> | Buffer {
    return isHybrid(this.c.codec) ? this.buffer('no means') : this.weights.mean(layer, loop, 'value');
  }

  /** Width of a query as attention reads it: of latents where it is absorbed. */
  queryWidth(place: Place): number {
    return place.block.name === 'core' ? queryWidth(this.c) : this.c.geometry.headDim;
  }
}

/** All cached tokens; or those before a window of exact rows; or those in it. */
export type CachedTokens = 'all' | 'older' | 'recent';
export const CACHED_TOKENS: readonly CachedTokens[] = ['all', 'older', 'recent'];

/** Last tokens before the current one whose rows of full width a window has. */
export const recentTokens = ({ geometry: { laterLoopsWindow }, codec }: Configuration): number =>
  laterLoopsWindow === undefined ? (codec.windowTokens ?? 0) : laterLoopsWindow - 1;

/** True where loops after the first attend to its rows, and to windows of their own. */
export const readsFirstRows = ({ geometry }: Configuration, { name }: LayerBlock): boolean =>
  name === 'core' && geometry.laterLoopsWindow !== undefined;

/** Attention over the window of a later loop, and its merge. */
const LOOP_WINDOW: readonly string[] = ['attend-window', 'merge-window'];

/** The operation that attends to the window. */
export const RECENT = 'attend-recent';

/** Spans of the sequences from one on: a part's own, as bindings begin at multiples that a few spans do not fill. */
export const spansFrom = (sequence: number, tokens: CachedTokens = 'all'): string =>
  `spans${tokens === 'all' ? '' : ` of ${tokens}`}${sequence === 0 ? '' : ` from ${sequence}`}`;

/** Rows that are rebuilt for a part of the sequences. */
export const rebuiltRows = (axis: CodecAxis, part: number): string => `rebuilt ${axis}s${partSuffix(part)}`;

/**
 * Allocates activations, in-flight latents, eviction's state and tables: everything that is neither weight nor cache.
 * @throws GpuError `unsupported` for activations of the whole batch that no binding holds
 */
export async function allocateWorkspace(
  c: Configuration,
  batch: number,
  contextTokens: number,
  caches: Caches,
  allocations: Allocations,
  device: Device,
): Promise<void> {
  const { capacity } = caches.slots;
  for (const row of stepBuffers(c, capacity)) {
    if (row.binding === 'whole') requireBindable(c, batch, row);
    if (typeof row.binding === 'string') await allocations.makeRow(row, batch);
    else
      for (const { index, count } of caches.parts(row.binding.apartIn))
        await allocations.makeRow(row, count, partSuffix(index));
  }
  await allocateControl(c, batch, contextTokens, caches, allocations, device);
}

/** Buffers that the memory model counts in its reserve: inputs that change from step to step, and tables of angles. */
async function allocateControl(
  c: Configuration,
  batch: number,
  contextTokens: number,
  caches: Caches,
  allocations: Allocations,
  device: Device,
): Promise<void> {
  const g = c.geometry;
  const blocks = blocksOf(g);
  const make = (label: string, words: number): Promise<Buffer> => allocations.make(label, 'control', 4 * words);
  if (g.exitGate) await make('exit', batch);
  for (const label of ['tokens', 'next tokens', 'positions', 'places']) await make(label, batch);
  for (const block of blocks)
    for (const { first } of caches.parts(block.name))
      for (const tokens of windowOf(c, block) > 0 || readsFirstRows(c, block) ? CACHED_TOKENS : (['all'] as const))
        await make(spansFrom(first, tokens), 4 * (batch - first));
  if (pinsSinks(c.eviction) && blocks.some((block) => readsLatents(c, block)))
    await make('pinned positions', batch * caches.slots.capacity);
  if (weighsTokens(c.eviction))
    await make('moves', 2 * batch * Math.max(1, ...blocks.map((block) => evictingRows(c, block))));
  await make('draws', 2 * batch);
  if (isHybrid(c.codec)) await make('no means', g.kvHeads * g.headDim);
  for (const width of new Set([g.headDim, ...blocks.map((block) => branchWidth(c, block)).filter((n) => n > 0)])) {
    const table = rotaryTable(width, { ropeBase: g.rope.theta, positions: contextTokens + 1 });
    await device.write(await make(`turns ${width}`, table.bytes / 4), table.data?.() as Float32Array<ArrayBuffer>);
  }
}

/** Activations of all sequences are bound at once: only buffers that grow with the cache are divided. */
function requireBindable(c: Configuration, batch: number, { label, sequenceBytes }: BufferRow): void {
  if (batch * sequenceBytes <= c.bindingBytes) return;
  const most = Math.floor(c.bindingBytes / sequenceBytes);
  throw new GpuError(
    'unsupported',
    `buffer ${label} takes ${batch * sequenceBytes} bytes for ${batch} sequences, more than the ${c.bindingBytes} that the device binds at once (maxStorageBufferBindingSize): take a batch of at most ${most}`,
  );
}
