/** What a cache holds, read back: for whoever studies or checks it, not for decoding. */
import { weighsTokens } from '../../eviction/policy.js';
import { blocksOf, type LayerBlock } from '../../geometry/geometry.js';
import { cacheRow } from '../../../kernels/host/cache-layout.js';
import { loopsRow } from '../../gpu/residual-layout.js';
import type { Buffer } from '../../gpu/index.js';
import type { Place } from '../../schedule/configuration.js';
import { evictingRows } from '../../schedule/facts.js';
import { labelOf, type CacheRole } from '../../schedule/bind/refs.js';
import { divideSpan, slotOf, spanOf } from '../../schedule/cache-map.js';
import type { Machine } from './machine.js';

/** A layer and loop of a block. */
export interface CachePlace {
  readonly block: LayerBlock['name'];
  readonly layer: number;
  readonly loop: number;
}

/** Rows of one role in a layer and loop, by the number of the sequence and of the head that stores them. */
export interface CachedRows {
  readonly heads: number;
  /** Positions of the cached tokens, ascending. */
  positions(sequence: number, head: number): number[];
  /** A token's row as stored, undefined if not cached. Keys are rotated; loops stored together lie end to end. */
  row(sequence: number, head: number, position: number): Float64Array | undefined;
}

/** @param lengths tokens of each sequence so far */
export async function cachedRows(
  m: Machine,
  role: CacheRole,
  at: CachePlace,
  lengths: readonly number[],
): Promise<CachedRows> {
  const place = { ...at, block: blocksOf(m.c.geometry).find(({ name }) => name === at.block) } as Place;
  const tensor = m.caches.tensor(role, place);
  const { heads, width, storage, groupSize, windowTokens, residual } = tensor;
  const slots = windowTokens === undefined ? m.caches.slots : m.caches.recentSlots;
  const { capacity } = slots;
  const read = async (buffer: Buffer): Promise<Uint32Array> => new Uint32Array(await m.device.read(buffer));
  const byMass = weighsTokens(m.c.eviction);
  const evictedAt = (part: number): Buffer =>
    m.buffer(labelOf({ buffer: `kept positions ${at.block}`, index: m.caches.unit(place, at.loop), part }));
  const parts = new Map<number, { readonly words: Uint32Array; readonly positions: Uint32Array | undefined }>();
  for (const part of m.caches.parts(at.block))
    parts.set(part.index, {
      words: await read(m.caches.buffer(role, place, at.loop, part.index)),
      positions: byMass ? await read(evictedAt(part.index)) : undefined,
    });
  const sequences = lengths.map((length, sequence) => {
    const { index, first } = m.caches.partOf(at.block, sequence);
    const { words, positions } = parts.get(index) as NonNullable<ReturnType<typeof parts.get>>;
    const kept = spanOf(m.c.eviction, m.caches.slots, length);
    return {
      number: sequence - first,
      positions,
      at: residual
        ? loopsRow((i) => words[i] as number, residual, capacity)
        : cacheRow((i) => words[i] as number, storage, width, groupSize, capacity),
      span: windowTokens === undefined ? kept : divideSpan(kept, windowTokens).recent,
    };
  });
  const evicting = evictingRows(m.c, place.block);
  /** Slots of the tokens of each sequence and head, by their positions. */
  const slotsOf = sequences.map(({ number, span, positions }) =>
    Array.from({ length: heads }, (_, head) => {
      const base = (number * evicting + Math.floor((head * evicting) / heads)) * slots.capacity;
      const ring = Array.from({ length: span.ring }, (_, i) => span.firstPosition + i);
      return new Map([
        ...Array.from({ length: span.pinned }, (_, slot) => [positions?.[base + slot] ?? slot, slot] as const),
        ...ring.map((position) => [position, slotOf(slots, position)] as const),
      ]);
    }),
  );
  return {
    heads,
    positions: (sequence, head) => [...(slotsOf[sequence]?.[head]?.keys() ?? [])].sort((a, b) => a - b),
    row(sequence, head, position) {
      const of = sequences[sequence];
      const slot = slotsOf[sequence]?.[head]?.get(position);
      if (!of || slot === undefined) return undefined;
      return Float64Array.from({ length: width }, (_, i) => of.at(of.number * heads + head, slot, i));
    },
  };
}
