/** The float64 reference of evict_chunk, and the comparison of its outputs with it. */
import { cacheRow, capacityOf, type Words } from '../../gpu/cache-layout.js';
import { dim, type Checker } from '../reference.js';
import { runOf } from '../shared/evict.launch.js';
import { staysBehind } from '../shared/evict.reference.js';
import { GROUP_SIZE, storageOfVariant } from '../spec.js';

/** The same; pinned tokens that stay keep their rows and positions. */
export const reference: Checker = {
  outputs: ['mass', 'positions', 'keys', 'values'],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => {
    const { held, context, kept, width, groupSize } = s.call.shape as Readonly<
      Record<'held' | 'context' | 'kept' | 'width' | 'groupSize', number>
    >;
    if (s.options.evictChunk) throw new Error('evict_chunk is verified with its own options only');
    const pinned = Math.floor(kept / 2);
    const [capacity, runCapacity] = [capacityOf(kept), capacityOf(context)];
    const mass = (token: number): number => s.input('runMass')(row * context + token);
    const stays = staysBehind(
      Array.from({ length: context }, (_, token) => mass(token)),
      { held, position: held },
      pinned,
      kept - pinned,
    );
    const rows = (words: Words, c: { width: number }, slots: number) =>
      cacheRow(words, storageOfVariant(s.call.variant), c.width, groupSize || GROUP_SIZE, slots);
    const caches = [
      { name: 'keys', width: Math.ceil(width / 2) },
      { name: 'values', width: Math.floor(width / 2) },
    ].map((c) => ({
      width: c.width,
      run: rows(s.inputWords(runOf(c.name)), c, runCapacity),
      before: rows(s.inputWords(c.name), c, capacity),
      now: rows(s.outputWords(c.name), c, capacity),
    }));
    const components = (
      value: (c: (typeof caches)[number], stay: (typeof stays)[number], i: number) => number,
    ): number[] =>
      stays.flatMap((stay) => caches.flatMap((c) => Array.from({ length: c.width }, (_, i) => value(c, stay, i))));
    const position = ({ token, slot, moves }: (typeof stays)[number]): number =>
      moves || slot >= pinned ? token : s.input('positions')(row * capacity + slot);
    const actual = [
      ...stays.flatMap(({ slot }) => [
        s.output('mass')(row * capacity + slot),
        s.output('positions')(row * capacity + slot) / context,
      ]),
      ...components((c, { slot }, i) => c.now(row, slot, i)),
    ];
    return {
      expected: [
        ...stays.flatMap((stay) => [mass(stay.token), position(stay) / context]),
        ...components((c, { token, slot, moves }, i) => (moves ? c.run(row, token, i) : c.before(row, slot, i))),
      ],
      actual: (i) => actual[i] as number,
    };
  },
};
