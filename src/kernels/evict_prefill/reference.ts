/** The float64 reference of evict_prefill, and the comparison of its outputs with it. */
import { cacheRow, capacityOf } from '../../gpu/cache-layout.js';
import { dim, type Checker } from '../reference.js';
import { runOf } from '../shared/evict.launch.js';
import { staysOf } from '../shared/evict.reference.js';
import { GROUP_SIZE, storageOfVariant } from '../spec.js';

/** Mass, position and rows of the slots that are filled. */
export const reference: Checker = {
  outputs: ['mass', 'positions', 'keys', 'values'],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => {
    const { context, kept, width, groupSize } = s.call.shape as Readonly<
      Record<'context' | 'kept' | 'width' | 'groupSize', number>
    >;
    if (s.options.evictPrefill) throw new Error('evict_prefill is verified with its own options only');
    const pinned = Math.floor(kept / 2);
    const [capacity, runCapacity] = [capacityOf(kept), capacityOf(context)];
    const mass = (token: number): number => s.input('runMass')(row * context + token);
    const stays = staysOf(
      Array.from({ length: context }, (_, token) => mass(token)),
      pinned,
      kept - pinned,
    );
    const storage = storageOfVariant(s.call.variant);
    const caches = [
      { name: 'keys', width: Math.ceil(width / 2) },
      { name: 'values', width: Math.floor(width / 2) },
    ].map((c) => ({
      ...c,
      run: cacheRow(s.inputWords(runOf(c.name)), storage, c.width, groupSize || GROUP_SIZE, runCapacity),
      now: cacheRow(s.outputWords(c.name), storage, c.width, groupSize || GROUP_SIZE, capacity),
    }));
    const filled = stays.map(({ token, slot }) => ({ token, slot, at: row * capacity + slot }));
    const components = (
      value: (c: (typeof caches)[number], token: number, slot: number, i: number) => number,
    ): number[] =>
      stays.flatMap(({ token, slot }) =>
        caches.flatMap((c) => Array.from({ length: c.width }, (_, i) => value(c, token, slot, i))),
      );
    const actual = [
      ...filled.flatMap(({ at }) => [s.output('mass')(at), s.output('positions')(at) / context]),
      ...components((c, _, slot, i) => c.now(row, slot, i)),
    ];
    return {
      expected: [
        ...filled.flatMap(({ token }) => [mass(token), token / context]),
        ...components((c, token, _, i) => c.run(row, token, i)),
      ],
      actual: (i) => actual[i] as number,
    };
  },
};
