/** What a cache holds, read back: for whoever studies keys and values, not for decoding. */
import { GpuError } from '../../gpu/index.js';
import { cacheRow } from '../../gpu/cache-layout.js';
import { rowSlots } from '../../codecs/layout.js';
import { blocksOf } from '../../geometry/geometry.js';
import type { Place } from '../../schedule/expand.js';
import type { Machine } from './machine.js';

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
  const block = blocksOf(m.c.geometry).find(({ name }) => name === 'core') as Place['block'];
  const place = { block, layer, loop } as Place;
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
