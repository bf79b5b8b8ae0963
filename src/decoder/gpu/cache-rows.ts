/** What a cache holds, read back: for whoever studies or checks it, not for decoding. */
import { GpuError } from '../../gpu/index.js';
import { weighsTokens } from '../../eviction/policy.js';
import { cacheRow } from '../../gpu/cache-layout.js';
import { rowSlots } from '../../codecs/layout.js';
import { blocksOf, type LayerBlock } from '../../geometry/geometry.js';
import { evictingRows } from '../../schedule/eviction-ops.js';
import type { Place } from '../../schedule/expand.js';
import { slotOf, spanOf } from './caches.js';
import type { Machine } from './machine.js';

/** A layer and loop of a block. */
export interface CachePlace {
  readonly block: LayerBlock['name'];
  readonly layer: number;
  readonly loop: number;
}

const placeOf = (m: Machine, { block, layer, loop }: CachePlace): Place =>
  ({ block: blocksOf(m.c.geometry).find(({ name }) => name === block), layer, loop }) as Place;

/**
 * Rows of every sequence's tokens in one layer and loop of the core: [sequence][head], each [token][width]. Keys of full
 * width are rotated by their positions.
 * @throws GpuError `unsupported` for a cache that loses tokens
 */
export async function cacheRows(
  m: Machine,
  role: 'key' | 'value',
  layer: number,
  loop: number,
  lengths: readonly number[],
): Promise<Float64Array[][]> {
  if (m.c.eviction) throw new GpuError('unsupported', 'rows of a cache under eviction cannot be read back');
  const place = placeOf(m, { block: 'core', layer, loop });
  const tensor = m.caches.tensor(role, place);
  const capacity = rowSlots(tensor, m.caches.slots.capacity);
  const rows: Float64Array[][] = [];
  for (const part of m.caches.parts('core')) {
    const words = new Uint32Array(await m.device.read(m.caches.buffer(role, place, loop, part.index)));
    const at = cacheRow((i) => words[i] as number, tensor.storage, tensor.width, tensor.groupSize, capacity);
    for (let sequence = 0; sequence < part.count; sequence++) {
      const tokens = lengths[part.first + sequence] as number;
      rows.push(
        Array.from({ length: tensor.heads }, (_, head) => {
          const out = new Float64Array(tokens * tensor.width);
          for (let token = 0; token < tokens; token++)
            for (let i = 0; i < tensor.width; i++)
              out[token * tensor.width + i] = at(sequence * tensor.heads + head, token, i);
          return out;
        }),
      );
    }
  }
  return rows;
}

/**
 * Positions that H2O keeps in one layer and loop: [sequence][row that evicts on its own], ascending.
 * @throws GpuError `unsupported` for a cache whose tokens are not chosen by mass
 */
export async function keptPositions(m: Machine, at: CachePlace, lengths: readonly number[]): Promise<number[][][]> {
  if (!weighsTokens(m.c.eviction))
    throw new GpuError('unsupported', 'the positions of this cache follow from its length');
  const { slots } = m.caches;
  const place = placeOf(m, at);
  const rows = evictingRows(m.c, place.block);
  const kept: number[][][] = [];
  for (const part of m.caches.parts(place.block.name)) {
    const positions = new Uint32Array(await m.device.read(m.evictionBuffer('positions', place, part)));
    for (let sequence = 0; sequence < part.count; sequence++) {
      const { pinned, firstPosition, ring } = spanOf(m.c.eviction, slots, lengths[part.first + sequence] as number);
      const inRing = Array.from({ length: ring }, (_, i) => slotOf(slots, firstPosition + i));
      kept.push(
        Array.from({ length: rows }, (_, row) => {
          const base = (sequence * rows + row) * slots.capacity;
          return [...Array.from({ length: pinned }, (_, i) => i), ...inRing]
            .map((slot) => positions[base + slot] as number)
            .sort((a, b) => a - b);
        }),
      );
    }
  }
  return kept;
}
