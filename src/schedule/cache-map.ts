/**
 * Where the cached rows of a batch are: slots of a row, tensors of a place, and which sequences share a buffer. Where
 * one binding does not hold all sequences, each part of them that it holds (cache-parts.ts) has a buffer.
 */
import { loopSlot, pagedTokens, rowSlots, tensorOfLoop, type CacheLayout, type CacheTensor } from '../codecs/layout.js';
import { packedTokens } from '../codecs/flashloop.js';
import { layoutOf, streamsOf } from '../codecs/registry.js';
import { UserError } from '../errors.js';
import {
  allocatedTokens,
  evictionLabel,
  fullSegments,
  pinnedSlots,
  pinsSinks,
  type Eviction,
} from '../eviction/policy.js';
import { blocksOf, type LayerBlock } from '../geometry/geometry.js';
import type { Span } from '../../kernels/attention-options.js';
import { partSuffix, type CacheRole } from './bind/refs.js';
import { cacheParts } from './cache-parts.js';
import type { Configuration, Place } from './configuration.js';

/** Slots of a row: `pinned`, of which `heavy` at most are filled, then a ring; `sinks` lie by position. */
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
  if (!eviction) return ringOf(capacity);
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

/** Slots that are all of a ring. */
const ringOf = (capacity: number): Slots => ({ capacity, pinned: 0, ring: capacity, heavy: 0, sinks: 0 });

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

/** The tokens of a span that latents are read for, and those that exact rows are read for. */
export function divideSpan({ pinned, firstPosition, ring }: Span, windowTokens: number): { older: Span; recent: Span } {
  const recent = Math.min(ring, windowTokens);
  return {
    older: { pinned, firstPosition, ring: ring - recent },
    recent: { pinned: 0, firstPosition: firstPosition + ring - recent, ring: recent },
  };
}

/** Packed tokens of a sequence for pinned ones, and exact ones. */
export function packedSpan({ geometry, codec }: Configuration, length: number): Span {
  const streams = streamsOf(geometry, codec);
  const packed = streams ? packedTokens(length, { group: streams.group, tail: streams.tail.least }) : 0;
  return { pinned: packed, firstPosition: packed, ring: length - packed };
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

/** Parts of a batch, one after the other. */
function divide(c: Configuration, block: LayerBlock, batch: number, capacity: number): CachePart[] {
  const division: CachePart[] = [];
  let first = 0;
  for (const { size, repeat } of cacheParts(c, block, batch, capacity))
    for (let i = 0; i < repeat; i++) {
      division.push({ index: division.length, first, count: size });
      first += size;
    }
  return division;
}

export class CacheMap {
  readonly layout: CacheLayout;
  readonly slots: Slots;
  /** Of the ring of exact rows beside latents; as `slots` where there is none. */
  readonly recentSlots: Slots;
  private readonly division: ReadonlyMap<LayerBlock['name'], readonly CachePart[]>;

  /** @param ahead tokens that a window has room for beside its own: those that are taken back again */
  constructor(
    c: Configuration,
    readonly batch: number,
    contextTokens: number,
    pageTokens: number,
    private readonly ahead = 0,
    /** What the names of its buffers begin with. */
    private readonly name = 'cache',
  ) {
    this.layout = layoutOf(c.geometry, c.codec, c.path, c.choice, c.branch);
    this.slots = slotsOf(c.eviction, contextTokens, pageTokens);
    const window = this.layout.find((t) => t.windowTokens !== undefined);
    this.recentSlots = window ? ringOf(this.rowSlots(window)) : this.slots;
    const { capacity } = this.slots;
    this.division = new Map(blocksOf(c.geometry).map((block) => [block.name, divide(c, block, batch, capacity)]));
  }

  /** Slots of a tensor's rows. */
  rowSlots({ windowTokens, ...t }: CacheTensor): number {
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
    if (!found)
      throw new Error(`${place.block.name} has no ${role} in its cache, or several that no window tells apart`);
    return found;
  }

  /** The name of the buffer of a place's rows; layers and loops that share rows have one. */
  labelAt(role: CacheRole, place: Place, loop: number, part: number): string {
    const t = this.tensor(role, place, loop);
    return this.label(t, share(place.layer, place.block.layers, t.layers), loopSlot(t, loop, place.block.loops), part);
  }

  label(t: CacheTensor, layer: number, loop: number, part: number): string {
    const window = t.windowTokens === undefined ? '' : ' window';
    return `${this.name} ${t.block} ${t.role}${window} ${layer}.${loop}${partSuffix(part)}`;
  }

  /** Number of the row set that a place belongs to: layers and loops that share any row of a block evict together. */
  unit({ block, layer }: Place, loop: number): number {
    const own = this.layout.filter((t) => t.block === block.name);
    const loops = Math.min(...own.map((t) => t.loops));
    const layers = Math.min(...own.map((t) => t.layers));
    return share(layer, block.layers, layers) * loops + share(loop, block.loops, loops);
  }
}
