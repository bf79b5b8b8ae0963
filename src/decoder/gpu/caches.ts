/**
 * The caches of a batch, one buffer a row set of a layer and loop, and which of their tokens a step reads. Where one
 * binding does not hold all sequences, each part of them that it holds (schedule/cache-parts.ts) has a buffer.
 */
import type { Span } from '../../../kernels/options.js';
import type { CacheLayout, CacheTensor } from '../../codecs/layout.js';
import { layoutOf } from '../../codecs/registry.js';
import { loopSlot, pagedTokens, rowSlots, tensorOfLoop } from '../../codecs/layout.js';
import { UserError } from '../../errors.js';
import {
  allocatedTokens,
  evictionLabel,
  fullSegments,
  pinnedSlots,
  pinsSinks,
  type Eviction,
} from '../../eviction/policy.js';
import { cacheBytes, rowLayout } from '../../gpu/cache-layout.js';
import { GpuError, type Buffer } from '../../gpu/index.js';
import { residualCacheBytes } from '../../../kernels/shared/residual.layout.js';
import { cacheParts, sequenceBytes } from '../../schedule/cache-parts.js';
import type { Configuration } from '../../schedule/schedule.js';
import type { AllocationKind, Allocations } from './allocations.js';
import { blocksOf, type LayerBlock } from '../../geometry/geometry.js';
import type { Place } from '../../schedule/expand.js';

export type CacheRole = CacheTensor['role'];

/**
 * How the slots of a row are used: `pinned` slots, of which `heavy` at most are filled, then a ring; `sinks` lie in the
 * slot of their position.
 */
export interface Slots {
  readonly capacity: number;
  readonly pinned: number;
  readonly ring: number;
  readonly heavy: number;
  readonly sinks: number;
}

/** @throws UserError for a policy that keeps no recent tokens: the token before the current one needs a slot */
export function slotsOf(eviction: Eviction | null, contextTokens: number, pageTokens: number): Slots {
  const capacity = pagedTokens(allocatedTokens(eviction, contextTokens), pageTokens);
  if (!eviction) return { capacity, pinned: 0, ring: capacity, heavy: 0, sinks: 0 };
  const full = fullSegments(eviction);
  if (full.ring < 1)
    throw new UserError(
      `${evictionLabel(eviction)} keeps no recent tokens, which the GPU decoder does not do`,
      'keep at least 1 recent token',
    );
  const pinned = pinnedSlots(eviction, capacity);
  const heavy = Math.min(pinned, full.pinned);
  return { capacity, pinned, ring: capacity - pinned, heavy, sinks: pinsSinks(eviction) ? pinned : 0 };
}

/** The tokens in the cache of a sequence of `length` tokens. Sinks come first; heavy tokens come out of a full ring. */
export function spanOf(eviction: Eviction | null, slots: Slots, length: number): Span {
  const most = Math.min(slots.ring, eviction ? fullSegments(eviction).ring : slots.ring);
  const sinks = Math.min(slots.sinks, length);
  const ring = Math.min(most, length - sinks);
  return {
    pinned: sinks + Math.min(slots.heavy - slots.sinks, length - sinks - ring),
    firstPosition: length - ring,
    ring,
  };
}

/** Slots of the ring of exact rows that a codec keeps beside its latents. */
const windowSlots = (slots: number): Slots => ({ capacity: slots, pinned: 0, ring: slots, heavy: 0, sinks: 0 });

/** The tokens of a span that latents are read for, and those that exact rows are read for. */
export function divideSpan({ pinned, firstPosition, ring }: Span, windowTokens: number): { older: Span; recent: Span } {
  const recent = Math.min(ring, windowTokens);
  return {
    older: { pinned, firstPosition, ring: ring - recent },
    recent: { pinned: 0, firstPosition: firstPosition + ring - recent, ring: recent },
  };
}

/** The slot of a position that the cache holds. */
export const slotOf = ({ pinned, ring, sinks }: Slots, position: number): number =>
  position < sinks ? position : pinned + (position % ring);

/** Slot `index` of `total` when only `slots` are stored. */
const share = (index: number, total: number, slots: number): number => Math.floor((index * slots) / total);

/** Sequences that share buffers. */
export interface CachePart {
  readonly index: number;
  readonly first: number;
  readonly count: number;
}

export class Caches {
  readonly layout: CacheLayout;
  readonly slots: Slots;
  /** Of the ring of exact rows beside latents; as `slots` where there is none. */
  readonly recentSlots: Slots;
  private readonly division: ReadonlyMap<LayerBlock['name'], readonly CachePart[]>;

  constructor(
    c: Configuration,
    readonly batch: number,
    contextTokens: number,
    pageTokens: number,
    private readonly allocations: Allocations,
    /** Tokens that a window has room for beside its own: those that are taken back again. */
    private readonly ahead = 0,
  ) {
    this.layout = layoutOf(c.geometry, c.codec, c.path, c.choice, c.branch);
    this.slots = slotsOf(c.eviction, contextTokens, pageTokens);
    const window = this.layout.find((t) => t.windowTokens !== undefined);
    this.recentSlots = window ? windowSlots(this.rowSlots(window)) : this.slots;
    this.division = new Map(blocksOf(c.geometry).map((block) => [block.name, this.divide(c, block)]));
  }

  /** @throws GpuError `unsupported` for what no part holds */
  private divide(c: Configuration, block: LayerBlock): CachePart[] {
    const bytes = sequenceBytes(c, block, this.slots.capacity);
    const limit = `${c.bindingBytes} bytes that the device binds at once (maxStorageBufferBindingSize)`;
    if (bytes > c.bindingBytes)
      throw new GpuError(
        'unsupported',
        `one layer and loop of one sequence takes ${bytes} bytes at ${this.slots.capacity} tokens, more than the ${limit}: take a shorter context or a smaller cache`,
      );
    const parts = cacheParts(c, block, this.batch, this.slots.capacity);
    const size = parts[0]?.size ?? 1;
    if (bytes * size > c.bindingBytes)
      throw new GpuError(
        'unsupported',
        `parts of ${size} sequences, each of which begins where a binding may, take more than the ${limit}: take a smaller batch or a shorter context`,
      );
    const division: CachePart[] = [];
    for (const { size, repeat } of parts)
      for (let i = 0; i < repeat; i++)
        division.push({
          index: division.length,
          first: division.reduce((sum, part) => sum + part.count, 0),
          count: size,
        });
    return division;
  }

  private rowSlots({ windowTokens, ...t }: CacheTensor): number {
    const held = windowTokens === undefined ? undefined : windowTokens + this.ahead;
    return rowSlots({ ...t, windowTokens: held }, this.slots.capacity);
  }

  /** The parts that the sequences of a block's caches are in. */
  parts(block: LayerBlock['name']): readonly CachePart[] {
    return this.division.get(block) ?? [];
  }

  /** The part that has a sequence. */
  partOf(block: LayerBlock['name'], sequence: number): CachePart {
    const found = this.parts(block).find(({ first, count }) => sequence >= first && sequence < first + count);
    if (!found) throw new RangeError(`no sequence ${sequence} in the caches of ${block}`);
    return found;
  }

  tensor(role: CacheRole, place: Place, loop = place.loop): CacheTensor {
    const found = tensorOfLoop(this.layout, place.block.name, role, loop);
    if (!found) throw new Error(`${place.block.name} has no ${role} in its cache`);
    return found;
  }

  private label(t: CacheTensor, layer: number, loop: number, part: number): string {
    return `cache ${t.block} ${t.role}${t.windowTokens === undefined ? '' : ' window'} ${layer}.${loop}${part > 0 ? ` part ${part}` : ''}`;
  }

  async allocate(kind: AllocationKind = 'cache'): Promise<void> {
    for (const t of this.layout) {
      for (const { index, count } of this.parts(t.block)) {
        const bytes = this.bytesOf(t, count);
        // Read in 16 bytes at a time.
        const padding = Math.ceil(bytes / 16) * 16 - bytes;
        for (let layer = 0; layer < t.layers; layer++) {
          for (let loop = 0; loop < t.loops; loop++) {
            await this.allocations.make(this.label(t, layer, loop, index), [
              { kind, bytes },
              ...(padding > 0 ? [{ kind: 'control' as const, bytes: padding }] : []),
            ]);
          }
        }
      }
    }
  }

  /**
   * Rows [sequence][head] of a part of the sequences, in a layer and loop; layers and loops that share rows have one
   * buffer.
   */
  buffer(role: CacheRole, place: Place, loop = place.loop, part = 0): Buffer {
    const t = this.tensor(role, place, loop);
    return this.allocations.get(
      this.label(t, share(place.layer, place.block.layers, t.layers), loopSlot(t, loop, place.block.loops), part),
    );
  }

  /** Bytes of a sequence's rows of one role in a layer and loop. */
  bytesEach(role: CacheRole, place: Place): number {
    return this.bytesOf(this.tensor(role, place), 1);
  }

  private bytesOf(t: CacheTensor, sequences: number): number {
    const rows = sequences * t.heads;
    return t.residual
      ? residualCacheBytes(t.residual, this.rowSlots(t), rows)
      : cacheBytes(rowLayout(t.storage, t.width, t.groupSize), this.rowSlots(t), rows);
  }

  private fewest(block: LayerBlock, dimension: 'layers' | 'loops'): number {
    return Math.min(...this.layout.filter((t) => t.block === block.name).map((t) => t[dimension]));
  }

  /** Number of the row set that a place belongs to: layers and loops that share any row of a block evict together. */
  unit({ block, layer }: Place, loop: number): number {
    const [layers, loops] = [this.fewest(block, 'layers'), this.fewest(block, 'loops')];
    return share(layer, block.layers, layers) * loops + share(loop, block.loops, loops);
  }

  /** Every buffer with its tensor. */
  *buffers(): Generator<{ tensor: CacheTensor; buffer: Buffer }> {
    for (const tensor of this.layout) {
      for (let layer = 0; layer < tensor.layers; layer++) {
        for (let loop = 0; loop < tensor.loops; loop++) {
          for (const { index } of this.parts(tensor.block))
            yield { tensor, buffer: this.allocations.get(this.label(tensor, layer, loop, index)) };
        }
      }
    }
  }
}
