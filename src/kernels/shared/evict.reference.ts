/** Which tokens stay under H2O, in float64. */

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
