/** The float64 reference of evict, and the comparison of its outputs with it. */
import { cacheRow, capacityOf } from '../host/cache-layout.js';
import { dim, dimsOf, type Checker } from '../reference.js';
import { storageOfVariant } from '../spec.js';

/**
 * A full cache, as the plan's own spans have it: the mass of all slots, and the rows of the pinned slot that was
 * exchanged.
 */
export const reference: Checker = {
  outputs: ['mass', 'keys', 'values'],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => {
    const { context: pinned, width, groupSize } = dimsOf<'evict'>(s);
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

/** Tokens of a row: `spans` of the kernels. */
export interface Span {
  /** Pinned tokens, in slots from 0. */
  readonly pinned: number;
  /** Position of the first ring token, and how many there are. */
  readonly first: number;
  readonly ring: number;
}

/** A token's move from one slot to another. */
interface Move {
  readonly from: number;
  readonly to: number;
}

/** Slot of the token that comes next. */
export const nextSlot = (span: Span, pinnedSlots: number, ringSlots: number): number =>
  pinnedSlots + ((span.first + span.ring) % ringSlots);

/**
 * Destination of the oldest ring token before the next one is appended: the next pinned slot, or the slot of the
 * lightest pinned token (the lowest slot of equals) if that is lighter; null where the token is dropped, or where the
 * ring has room.
 * @param heavy pinned slots that are filled at most
 */
export function moveOf(
  mass: readonly number[],
  span: Span,
  pinnedSlots: number,
  ringSlots: number,
  heavy = pinnedSlots,
): Move | null {
  if (span.ring < ringSlots) return null;
  const from = pinnedSlots + (span.first % ringSlots);
  if (span.pinned < heavy) return { from, to: span.pinned };
  let to = 0;
  for (let slot = 1; slot < heavy; slot++) if ((mass[slot] as number) < (mass[to] as number)) to = slot;
  return (mass[from] as number) > (mass[to] as number) ? { from, to } : null;
}
