/**
 * What the operations of a step work on: weights, caches, activations and the few numbers that change from step to
 * step.
 */
import { blocksOf } from '../../geometry/geometry.js';
import { isLatent } from '../../codecs/registry.js';
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
import { blockPlan } from '../../schedule/block-absorbed.js';
import { blockBasisScalars } from '../../kernels/block_basis/terms.js';
import { blockComponents } from '../../kernels/block_vectors/terms.js';
import { spansLoops } from '../../schedule/configuration.js';
import { branchWidth, evictingRows, readsLatents } from '../../schedule/eviction-ops.js';
import type { Configuration } from '../../schedule/schedule.js';
import type { AllocationKind, Allocations } from './allocations.js';
import type { CachePart, Caches } from './caches.js';
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
  /** The stream that layers add to, and what norms write; a norm between loops makes them change places. */
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
    /** What a sequence's cache holds at most in the steps that are planned. */
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

  /** Which tokens each sequence of a part has in its cache. */
  spans({ first }: CachePart): Buffer {
    return this.buffer(spansFrom(first));
  }

  /** H2O's state: one buffer a row set that evicts on its own, in a layer and loop, and part of the sequences. */
  evictionBuffers(what: 'mass' | 'positions'): Buffer[] {
    return this.allocations.startingWith(`kept ${what} `);
  }

  /** The state of the row set that a place belongs to. */
  evictionBuffer(what: 'mass' | 'positions', place: Place, { index }: CachePart, loop = place.loop): Buffer {
    return this.buffer(keptLabel(what, place.block.name, this.caches.unit(place, loop), index));
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

/** Spans of the sequences from one on: a part's own, as bindings begin at multiples that a few spans do not fill. */
export const spansFrom = (sequence: number): string => (sequence === 0 ? 'spans' : `spans from ${sequence}`);

/** Rows that are rebuilt for a part of the sequences. */
export const rebuiltRows = (axis: 'keys' | 'values', part: number): string =>
  `rebuilt ${axis}${part > 0 ? ` part ${part}` : ''}`;

const keptLabel = (
  what: 'mass' | 'positions',
  block: string,
  { layer, loop }: { layer: number; loop: number },
  part: number,
): string => `kept ${what} ${block} ${layer}.${loop}${part > 0 ? ` part ${part}` : ''}`;

/** Rotary tables reach as far as the cache does, and one step beyond. */
const positionsOf = (contextTokens: number): number => contextTokens + 1;

/** Floats of a row of the projection's output. */
export const packedRow = (c: Configuration): number => {
  const { heads, kvHeads, headDim } = c.geometry;
  return (heads + 2 * kvHeads) * headDim + (c.path === 'absorbed' ? c.branch.width * heads : 0);
};

const queryWidth = (c: Configuration): number =>
  c.path === 'absorbed' ? (c.codec.rankK as number) + c.branch.width : c.geometry.headDim;

/** Sets of queries: a second one where StreamingLLM's sinks are scored by it. */
export function querySets(c: Configuration): 1 | 2 {
  if (c.eviction?.policy !== 'streaming') return 1;
  return c.path === 'absorbed' || blocksOf(c.geometry).some((block) => !readsLatents(c, block)) ? 2 : 1;
}

/**
 * Allocates activations, in-flight latents and tables: everything that is neither weight nor cache.
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
  const g = c.geometry;
  const { heads, kvHeads, headDim: d } = g;
  /** Bound from each part of the sequences to the next. */
  const inParts = (label: string, floats: number): Promise<Buffer> =>
    allocations.make(label, 'workspace', 4 * batch * floats);
  const make = (label: string, floats: number, kind: AllocationKind = 'workspace'): Promise<Buffer> => {
    requireBindable(c, batch, label, 4 * floats);
    return allocations.make(label, kind, 4 * batch * floats);
  };
  const latent = isLatent(c.codec);
  const blocks = blocksOf(g);
  const { rankK = 0, rankV = 0 } = c.codec;
  const readsLatent = blocks.some((block) => readsLatents(c, block));
  for (let i = 0; i < (g.adapter ? 4 : 2); i++) await make(`residual ${i}`, g.hidden);
  await make('projected', g.hidden);
  await make('query key value', packedRow(c));
  await make('queries', querySets(c) * heads * Math.max(d, queryWidth(c)));
  await make('attention', heads * d);
  await make('stats', heads * 2);
  if (readsLatent && !(c.path === 'reconstruct' && c.materialised)) await make('merged', heads * rankV);
  await make('gate up', 2 * g.mlpHidden);
  await make('activated', g.mlpHidden);
  await make('logits', g.vocab);
  await allocations.make('partials', 'workspace', partialsBytes(c, batch, caches.slots.pinned > 0));
  if (c.eviction?.policy === 'h2o') await allocateEviction(c, batch, caches, allocations);
  if (latent) {
    const latents = c.codec.kind === 'lla' ? kvHeads : 1;
    const layers = spansLoops(c) ? g.layers : 1;
    for (let layer = 0; layer < layers; layer++) {
      const kind = spansLoops(c) ? 'in-flight' : 'workspace';
      await make(`latent key ${layer}`, latents * rankK, kind);
      await make(`latent value ${layer}`, latents * rankV, kind);
      if (c.path === 'absorbed')
        await make(`branch key ${layer}`, c.branch.width * (c.branch.perHead ? kvHeads : 1), kind);
    }
    if (c.path === 'fast') {
      const loops = spansLoops(c) ? g.loops : 1;
      await make('reconstructed keys', loops * kvHeads * d);
      await make('reconstructed values', loops * kvHeads * d);
    }
    if (c.path === 'block-absorbed') {
      const { capacity, pinned } = caches.slots;
      await inParts('block vectors', heads * d * blockComponents(rankK));
      await inParts('block basis', heads * blockBasisScalars(capacity - pinned, rankK, blockPlan(g.rope.theta, d)));
    }
    if (c.path === 'reconstruct' && c.materialised) {
      for (const { index, count } of caches.parts('core')) {
        for (const axis of ['keys', 'values'] as const)
          await allocations.make(
            rebuiltRows(axis, index),
            'workspace',
            count * kvHeads * caches.slots.capacity * d * 2,
          );
      }
    }
  }
  if (g.exitGate) await allocations.make('exit', 'control', 4 * batch);
  for (const label of ['tokens', 'next tokens', 'positions', 'places'])
    await allocations.make(label, 'control', 4 * batch);
  for (const block of blocks)
    for (const { first } of caches.parts(block.name))
      await allocations.make(spansFrom(first), 'control', 16 * (batch - first));
  if (c.eviction?.policy === 'streaming' && readsLatent)
    await allocations.make('pinned positions', 'control', 4 * batch * caches.slots.capacity);
  await allocations.make('draws', 'control', 8 * batch);
  for (const width of new Set([
    d,
    ...(c.path === 'absorbed'
      ? [branchWidth(c, blocks.find((b) => b.name === 'core') as (typeof blocks)[number])]
      : []),
  ])) {
    const table = rotaryTable(width, { ropeBase: g.rope.theta, positions: positionsOf(contextTokens) });
    const buffer = await allocations.make(`turns ${width}`, 'control', table.bytes);
    await device.write(buffer, table.data?.() as Float32Array<ArrayBuffer>);
  }
}

/** Activations of all sequences are bound at once: only what grows with the cache is divided. */
function requireBindable(c: Configuration, batch: number, label: string, bytesEach: number): void {
  if (batch * bytesEach <= c.bindingBytes) return;
  const most = Math.floor(c.bindingBytes / bytesEach);
  throw new GpuError(
    'unsupported',
    `buffer ${label} takes ${batch * bytesEach} bytes for ${batch} sequences, more than the ${c.bindingBytes} that the device binds at once (maxStorageBufferBindingSize): take a batch of at most ${most}`,
  );
}

/** Split partials of attention, as cost/memory.ts bounds them; pinned tokens have splits of their own. */
function partialsBytes(c: Configuration, batch: number, pinned: boolean): number {
  const { heads, kvHeads, headDim } = c.geometry;
  const latentValues = isLatent(c.codec) && c.path !== 'fast' && !(c.path === 'reconstruct' && c.materialised);
  const width = Math.max(headDim, latentValues ? (c.codec.rankV as number) : 0) + 2;
  const group = c.path === 'absorbed' && c.codec.kind !== 'lla' ? heads : Math.ceil(heads / kvHeads);
  return 4 * width * (c.targetWorkgroups * group + batch * heads * (pinned ? 2 : 1));
}

/** H2O: scores of one layer, and mass and position of every cached token of each row set. */
async function allocateEviction(
  c: Configuration,
  batch: number,
  caches: Caches,
  allocations: Allocations,
): Promise<void> {
  const { capacity } = caches.slots;
  await allocations.make('scores', 'workspace', 4 * batch * c.geometry.heads * capacity);
  let most = 1;
  for (const block of blocksOf(c.geometry)) {
    const rows = evictingRows(c, block);
    most = Math.max(most, rows);
    for (const unit of caches.units(block)) {
      for (const { index, count } of caches.parts(block.name)) {
        for (const what of ['mass', 'positions'] as const)
          await allocations.make(keptLabel(what, block.name, unit, index), 'eviction', 4 * count * rows * capacity);
      }
    }
  }
  await allocations.make('moves', 'control', 8 * batch * most);
}
