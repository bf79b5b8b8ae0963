/**
 * The state that the operations of a step read and write: weights, caches, activations and the few numbers that change
 * from step to step.
 */
import { pinsSinks, weighsTokens } from '../../eviction/policy.js';
import { blocksOf } from '../../geometry/geometry.js';
import {
  bufferOf,
  GpuError,
  partOf,
  type Buffer,
  type Device,
  type BufferPlan,
  type OperationPlan,
} from '../../gpu/index.js';
import type { Span } from '../../kernels/shared/fold.launch.js';
import { rotaryTable } from '../../gpu/rotary.js';
import { branchWidth, evictingRows, readsLatents, windowOf } from '../../schedule/eviction-ops.js';
import type { Configuration } from '../../schedule/schedule.js';
import { packedRow, queryWidth, stepBuffers, type BufferRow } from '../../schedule/buffers.js';
import type { Allocations } from './allocations.js';
import { divideSpan, type CachePart, type Caches } from './caches.js';
import type { Place, Visit } from '../../schedule/expand.js';
import type { Weights } from './weights.js';

/** A planned call and its buffers, by the plan's names. */
export interface Dispatch {
  readonly plan: OperationPlan;
  readonly buffers: Readonly<Record<string, Buffer>>;
}

/** A vector of every sequence inside a buffer of rows, in floats: the first one, and from a sequence to the next. */
export interface Vectors {
  readonly offset: number;
  readonly stride: number;
}

export class Machine {
  /** The stream that layers add to, and the output of norms; a norm between loops exchanges them. */
  residual: Buffer;
  normed: Buffer;
  /** The stream as the prelude left it, where an adapter mixes it in. */
  preludeOutput: Buffer | undefined;
  /** The stream of the loop before, which the adapter mixes it with. */
  state: Buffer | undefined;

  constructor(
    readonly device: Device,
    readonly c: Configuration,
    readonly batch: number,
    readonly contextTokens: number,
    readonly normEpsilon: number,
    readonly allocations: Allocations,
    readonly weights: Weights,
    readonly caches: Caches,
    /** The largest cache of a sequence in the planned steps. */
    public longest: Span,
  ) {
    this.residual = allocations.get('residual 0');
    this.normed = allocations.get('residual 1');
  }

  buffer(label: string): Buffer {
    return this.allocations.get(label);
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

  /** The words of a part's sequences in a buffer in which each has as many. */
  own(label: string, { first, count }: CachePart, words: number): Buffer {
    return partOf(this.buffer(label), 4 * words * first, 4 * words * count);
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
    if (!place || windowOf(this.c, place.block) === 0) return 'all';
    return op.label === RECENT ? 'recent' : 'older';
  }

  /** Those of each sequence of a part. */
  spans({ first }: CachePart, visit: Visit): Buffer {
    return this.buffer(spansFrom(first, this.tokensOf(visit)));
  }

  /** The most of a sequence. */
  longestOf(visit: Visit): Span {
    const tokens = this.tokensOf(visit);
    return tokens === 'all' ? this.longest : divideSpan(this.longest, this.c.codec.windowTokens ?? 0)[tokens];
  }

  /** H2O's state: one buffer a row set that evicts on its own, in a layer and loop, and part of the sequences. */
  evictionBuffers(what: 'mass' | 'positions'): Buffer[] {
    return this.allocations.startingWith(`kept ${what} `);
  }

  /** The state of the row set that a place belongs to. */
  evictionBuffer(what: 'mass' | 'positions', place: Place, { index }: CachePart, loop = place.loop): Buffer {
    return this.buffer(`kept ${what} ${place.block.name} ${this.caches.unit(place, loop)}${partSuffix(index)}`);
  }

  /** The roles of the streams at the start of a step. */
  begin(longest: Span): void {
    this.longest = longest;
    this.residual = this.buffer('residual 0');
    this.normed = this.buffer('residual 1');
    this.preludeOutput = undefined;
    this.state = undefined;
  }

  /** Widths and places of the projection's output: queries, keys, values, queries of the rotary branch. */
  get packed(): { row: number; queries: Vectors; keys: Vectors; values: Vectors; branch: Vectors } {
    const { heads, kvHeads, headDim } = this.c.geometry;
    const row = packedRow(this.c);
    const at = (offset: number): Vectors => ({ offset, stride: row });
    return {
      row,
      queries: at(0),
      keys: at(heads * headDim),
      values: at((heads + kvHeads) * headDim),
      branch: at((heads + 2 * kvHeads) * headDim),
    };
  }

  get group(): number {
    return this.c.geometry.heads / this.c.geometry.kvHeads;
  }

  /** A table that comes with a plan, written when it is first asked for. */
  async table(label: string, planned: BufferPlan): Promise<Buffer> {
    if (this.allocations.has(label)) return this.buffer(label);
    const buffer = await this.allocations.make(label, 'control', planned.bytes);
    await this.device.write(buffer, planned.data?.() as Float32Array<ArrayBuffer>);
    return buffer;
  }

  /** Angles for vectors of a width. */
  turns(width: number): Buffer {
    return this.buffer(`turns ${width}`);
  }

  get positions(): number {
    return positionsOf(this.contextTokens);
  }

  /** Width of a query as attention reads it: of latents where it is absorbed. */
  queryWidth(place: Place): number {
    return place.block.name === 'core' ? queryWidth(this.c) : this.c.geometry.headDim;
  }
}

/** All cached tokens; or those before a window of exact rows; or those in it. */
export type CachedTokens = 'all' | 'older' | 'recent';
export const CACHED_TOKENS: readonly CachedTokens[] = ['all', 'older', 'recent'];

/** The operation that attends to the window. */
export const RECENT = 'attend-recent';

/** Spans of the sequences from one on: a part's own, as bindings begin at multiples that a few spans do not fill. */
export const spansFrom = (sequence: number, tokens: CachedTokens = 'all'): string =>
  `spans${tokens === 'all' ? '' : ` of ${tokens}`}${sequence === 0 ? '' : ` from ${sequence}`}`;

/** Rows that are rebuilt for a part of the sequences. */
export const rebuiltRows = (axis: 'keys' | 'values', part: number): string => `rebuilt ${axis}${partSuffix(part)}`;

/** Behind the label of a buffer that each part of the sequences has. */
const partSuffix = (part: number): string => (part > 0 ? ` part ${part}` : '');

/** Rotary tables reach as far as the cache does, and one step beyond. */
const positionsOf = (contextTokens: number): number => contextTokens + 1;

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
      for (const tokens of windowOf(c, block) > 0 ? CACHED_TOKENS : (['all'] as const))
        await make(spansFrom(first, tokens), 4 * (batch - first));
  if (pinsSinks(c.eviction) && blocks.some((block) => readsLatents(c, block)))
    await make('pinned positions', batch * caches.slots.capacity);
  if (weighsTokens(c.eviction))
    await make('moves', 2 * batch * Math.max(1, ...blocks.map((block) => evictingRows(c, block))));
  await make('draws', 2 * batch);
  for (const width of new Set([g.headDim, ...blocks.map((block) => branchWidth(c, block)).filter((n) => n > 0)])) {
    const table = rotaryTable(width, { ropeBase: g.rope.theta, positions: positionsOf(contextTokens) });
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
