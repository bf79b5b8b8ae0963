/** The float64 reference of append, and the comparison of its outputs with it. */
import { cacheRow, capacityOf, rowLayout } from '../host/cache-layout.js';
import { DEFAULTS } from '../launch.js';
import { dim, dimsOf, type Checker } from '../reference.js';
import { storedRow } from '../shared/cache/cache.reference.js';
import { storageOfVariant, TILE_TOKENS } from '../spec.js';

/** The tile of a cached row that its new token lies in, component by component. */
export const reference: Checker = {
  outputs: ['cache'],
  rows: (shape) => dim(shape, 'rows') * dim(shape, 'heads'),
  row: (s, row) => {
    const { heads, width, groupSize } = dimsOf<'append'>(s);
    const { capacity: tokens } = s.options.append ?? DEFAULTS.append;
    const capacity = capacityOf(tokens);
    const storage = storageOfVariant(s.call.variant);
    const slot = s.input('tokens')(Math.floor(row / heads)) % capacity;
    const [before, after] = [
      cacheRow(s.inputWords('cache'), storage, width, groupSize, capacity),
      cacheRow(s.outputWords('cache'), storage, width, groupSize, capacity),
    ];
    const values = Array.from({ length: width }, (_, i) => s.input('rows')(row * width + i));
    const stored = storedRow(s.outputWords('cache'), rowLayout(storage, width, groupSize), capacity, row, slot, values);
    const token = (index: number): number => slot - (slot % TILE_TOKENS) + Math.floor(index / width);
    return {
      expected: Array.from({ length: TILE_TOKENS * width }, (_, i) =>
        token(i) === slot ? (stored[i % width] as number) : before(row, token(i), i % width),
      ),
      actual: (i) => after(row, token(i), i % width),
    };
  },
};
