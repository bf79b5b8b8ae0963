/**
 * Checkers of the kernels that write caches and of those that follow split-KV attention, for one new token a sequence
 * and no ring.
 */
import { cacheRow, capacityOf, rowLayout, TILE_TOKENS } from '../gpu/cache-layout.js';
import { DEFAULTS } from '../kernels/launch.js';
import type { CurrentOptions, Vectors } from '../kernels/shared/current.launch.js';
import { storageOfVariant } from '../kernels/spec.js';
import { dim, type Checker, type Subject } from './checker.js';
import { storedRow } from './reference/cache.js';
import { moveOf, pooledWeight } from './reference/eviction.js';
import { mergeSplits, withToken, type Attended } from './reference/merge.js';

/** The tile of a cached row that its new token lies in, component by component. */
const append: Checker = {
  outputs: ['cache'],
  rows: (shape) => dim(shape, 'rows') * dim(shape, 'heads'),
  row: (s, row) => {
    const [heads, width, groupSize] = [
      dim(s.call.shape, 'heads'),
      dim(s.call.shape, 'width'),
      dim(s.call.shape, 'groupSize'),
    ];
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

/** Score (to base 2) and value of the current token for one query head. */
function currentToken(
  s: Subject,
  row: number,
  keyWidth: number,
  valueWidth: number,
): { score: number; value: number[] } {
  const { heads, group, scale, queries, keys, values }: CurrentOptions = s.options.current ?? { heads: 1, group: 1 };
  const [sequence, head] = [Math.floor(row / heads), row % heads];
  const kvHead = Math.floor(head / group);
  const first = (at: Vectors | undefined, count: number, width: number, index: number): number =>
    (at?.offset ?? 0) + sequence * (at?.stride ?? count * width) + index * width;
  const [q, k, v] = [
    first(queries, heads, keyWidth, head),
    first(keys, heads / group, keyWidth, kvHead),
    first(values, heads / group, valueWidth, kvHead),
  ];
  const absorbed = s.call.variant === 'absorbed';
  let dot = 0;
  for (let i = 0; i < keyWidth; i++)
    dot +=
      s.input('queries')(q + i) *
      (s.input('newKeys')(k + i) - (absorbed ? s.input('keyMeans')(kvHead * keyWidth + i) : 0));
  return {
    score: dot * (scale ?? keyWidth ** -0.5) * Math.LOG2E,
    value: Array.from({ length: valueWidth }, (_, i) => s.input('newValues')(v + i)),
  };
}

/** An output row followed by its sum; the maximum is compared through it, as it may be any number near 0. */
const attended = (s: Subject, row: number, { o, m, l }: Attended): ReturnType<Checker['row']> => ({
  expected: [...o, l],
  actual: (i) =>
    i < o.length
      ? s.output('output')(row * o.length + i)
      : s.output('stats')(2 * row + 1) * 2 ** (s.output('stats')(2 * row) - m),
});

const attend_merge: Checker = {
  outputs: ['output', 'stats'],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => {
    const [splits, width] = [dim(s.call.shape, 'splits'), dim(s.call.shape, 'width')];
    const partial = s.input('partials');
    const rows = Array.from({ length: splits }, (_, split) => {
      const at = (row * splits + split) * (width + 2);
      return {
        o: Array.from({ length: width }, (_, i) => partial(at + i)),
        m: partial(at + width),
        l: partial(at + width + 1),
      };
    });
    const merged = mergeSplits(rows, width);
    if (s.call.variant !== 'current') return attended(s, row, merged);
    const { score, value } = currentToken(s, row, dim(s.call.shape, 'keyWidth'), width);
    return attended(s, row, withToken(merged, score, value));
  },
};

const attend_current: Checker = {
  outputs: ['output', 'stats'],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => {
    const [keyWidth, width] = [dim(s.call.shape, 'keyWidth'), dim(s.call.shape, 'valueWidth')];
    const { heads, group }: CurrentOptions = s.options.current ?? { heads: 1, group: 1 };
    const kvHead = Math.floor((row % heads) / group);
    const o = Array.from(
      { length: width },
      (_, i) => s.input('output')(row * width + i) + s.input('valueMeans')(kvHead * width + i),
    );
    const { score, value } = currentToken(s, row, keyWidth, width);
    return attended(
      s,
      row,
      withToken({ o, m: s.input('stats')(2 * row), l: s.input('stats')(2 * row + 1) }, score, value),
    );
  },
};

const mass: Checker = {
  outputs: ['mass'],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => {
    const group = dim(s.call.shape, 'group');
    const slots = capacityOf(s.options.mass?.capacity ?? dim(s.call.shape, 'context'));
    const heads = Array.from({ length: group }, (_, i) => row * group + i);
    const stats = heads.map((head) => ({ m: s.input('stats')(2 * head), l: s.input('stats')(2 * head + 1) }));
    return {
      expected: Array.from(
        { length: slots },
        (_, slot) =>
          s.input('mass')(row * slots + slot) +
          pooledWeight(
            heads.map((head) => s.input('scores')(head * slots + slot)),
            stats,
          ),
      ),
      actual: (slot) => s.output('mass')(row * slots + slot),
    };
  },
};

/**
 * A full cache, as the plan's own spans have it: the mass of all slots, and the rows of the pinned slot that was
 * exchanged.
 */
const evict: Checker = {
  outputs: ['mass', 'keys', 'values'],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => {
    const { context: pinned, width, groupSize } = s.call.shape as { context: number; width: number; groupSize: number };
    if (s.options.evict) throw new Error('evict is verified with its own options only');
    const capacity = capacityOf(2 * pinned);
    const storage = storageOfVariant(s.call.variant);
    const masses = Array.from({ length: capacity }, (_, slot) => s.input('mass')(row * capacity + slot));
    const move = moveOf(masses, { pinned, first: 0, ring: pinned }, pinned, pinned);
    const after = masses.slice();
    if (move) after[move.to] = masses[move.from] as number;
    after[pinned] = 0;
    const caches = [
      { name: 'keys', width: Math.ceil(width / 2) },
      { name: 'values', width: Math.floor(width / 2) },
    ];
    const readers = caches.flatMap((c) => {
      const of = (words: (name: string) => (index: number) => number) =>
        cacheRow(words(c.name), storage, c.width, groupSize, capacity);
      const [before, now] = [of((name) => s.inputWords(name)), of((name) => s.outputWords(name))];
      return Array.from({ length: c.width }, (_, i) => ({
        before: (slot: number) => before(row, slot, i),
        now: (slot: number) => now(row, slot, i),
      }));
    });
    const slot = move?.to ?? 0;
    return {
      expected: [...after, ...readers.map((r) => r.before(move?.from ?? slot))],
      actual: (i) =>
        i < capacity
          ? s.output('mass')(row * capacity + i)
          : (readers[i - capacity] as (typeof readers)[number]).now(slot),
    };
  },
};

export const CACHE_CHECKERS = { append, attend_merge, attend_current, mass, evict } as const satisfies Record<
  string,
  Checker
>;
