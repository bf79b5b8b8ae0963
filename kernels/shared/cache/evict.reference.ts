/** Which tokens stay under H2O, in float64, and what lies in their slots. */
import { cacheRow, capacityOf, type Words } from '../../host/cache-layout.js';
import { dim, type Row, type Subject } from '../../reference.js';
import { GROUP_SIZE, storageOfVariant } from '../../spec.js';
import { runOf } from './evict.terms.js';

/** A token of a prompt and the slot that it stays in. */
interface Stay {
  readonly token: number;
  readonly slot: number;
}

/**
 * Which tokens of a prompt stay: the last `ringSlots` in the ring, at their position mod ringSlots, and the `heavy`
 * heaviest of those before them, of equals the earlier, in order of position.
 */
export function staysOf(mass: readonly number[], pinnedSlots: number, ringSlots: number, heavy = pinnedSlots): Stay[] {
  const older = mass.length - Math.min(ringSlots, mass.length);
  const byWeight = Array.from({ length: older }, (_, token) => token).sort(
    (a, b) => (mass[b] as number) - (mass[a] as number) || a - b,
  );
  const pinned = byWeight.slice(0, heavy).sort((a, b) => a - b);
  return [
    ...pinned.map((token, slot) => ({ token, slot })),
    ...Array.from({ length: mass.length - older }, (_, i) => ({
      token: older + i,
      slot: pinnedSlots + ((older + i) % ringSlots),
    })),
  ];
}

/**
 * Where the tokens of a run begin: how many of them the cache holds, pinned ones in order of their slots first, and the
 * position of the others' first.
 */
interface Begin {
  readonly held: number;
  readonly position: number;
}

/**
 * Which tokens of a chunk and of the cache before it stay: as in `staysOf`, but pinned ones in their slots, and newly
 * pinned ones in those that are free, in order.
 * @returns also whether the rows of a token are written to its slot
 */
export function staysBehind(
  mass: readonly number[],
  { held, position }: Begin,
  pinnedSlots: number,
  ringSlots: number,
  heavy = pinnedSlots,
): (Stay & { readonly moves: boolean })[] {
  const stays = staysOf(mass, pinnedSlots, ringSlots, heavy).map(({ token }) => token);
  const older = mass.length - Math.min(ringSlots, mass.length);
  const pinned = stays.filter((token) => token < older);
  const before = Math.max(0, held - ringSlots);
  const newly = pinned.filter((token) => token >= before);
  const free = pinned.map((_, slot) => slot).filter((slot) => slot >= before || !pinned.includes(slot));
  return [
    ...pinned.filter((token) => token < before).map((token) => ({ token, slot: token, moves: false })),
    ...newly.map((token, i) => ({ token, slot: free[i] as number, moves: true })),
    ...stays
      .filter((token) => token >= older)
      .map((token) => ({ token, slot: pinnedSlots + ((position - held + token) % ringSlots), moves: token >= held })),
  ];
}

/** Mass, position and rows of the slots that a call of the kernel without options fills. @param staysIn by mass */
export function filledSlots(
  s: Subject,
  row: number,
  staysIn: (mass: readonly number[], pinned: number, ring: number) => readonly (Stay & { readonly moves?: boolean })[],
): Row {
  const [context, kept, width] = [dim(s.call.shape, 'context'), dim(s.call.shape, 'kept'), dim(s.call.shape, 'width')];
  const pinned = Math.floor(kept / 2);
  const [capacity, runCapacity] = [capacityOf(kept), capacityOf(context)];
  const mass = Array.from({ length: context }, (_, token) => s.input('runMass')(row * context + token));
  const stays = staysIn(mass, pinned, kept - pinned);
  const rows = (words: Words, components: number, slots: number) =>
    cacheRow(words, storageOfVariant(s.call.variant), components, dim(s.call.shape, 'groupSize') || GROUP_SIZE, slots);
  const caches = (['keys', 'values'] as const).map((name, i) => {
    const components = i === 0 ? Math.ceil(width / 2) : Math.floor(width / 2);
    return {
      components,
      run: rows(s.inputWords(runOf(name)), components, runCapacity),
      before: rows(s.inputWords(name), components, capacity),
      now: rows(s.outputWords(name), components, capacity),
    };
  });
  const stored = (value: (c: (typeof caches)[number], stay: (typeof stays)[number], i: number) => number): number[] =>
    stays.flatMap((stay) => caches.flatMap((c) => Array.from({ length: c.components }, (_, i) => value(c, stay, i))));
  const at = (slot: number): number => row * capacity + slot;
  const actual = [
    ...stays.flatMap(({ slot }) => [s.output('mass')(at(slot)), s.output('positions')(at(slot)) / context]),
    ...stored((c, { slot }, i) => c.now(row, slot, i)),
  ];
  return {
    expected: [
      ...stays.flatMap(({ token, slot, moves = true }) => [
        mass[token] as number,
        (moves || slot >= pinned ? token : s.input('positions')(at(slot))) / context,
      ]),
      ...stored((c, { token, slot, moves = true }, i) => (moves ? c.run(row, token, i) : c.before(row, slot, i))),
    ],
    actual: (i) => actual[i] as number,
  };
}
