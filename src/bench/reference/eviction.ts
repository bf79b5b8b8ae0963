/**
 * H2O's mass and exchange of tokens in float64: the specification of mass.wgsl, evict.wgsl, evict_prefill.wgsl and
 * evict_chunk.wgsl.
 */

/** What a row holds: `spans` of the kernels. */
export interface Span {
  /** Pinned tokens, in slots from 0. */
  readonly pinned: number;
  /** Position of the first ring token, and how many there are. */
  readonly first: number;
  readonly ring: number;
}

/** A token's way from one slot to another. */
export interface Move {
  readonly from: number;
  readonly to: number;
}

/**
 * Softmax weight that the query heads of a row give one slot.
 * @param scores to base 2
 * @param stats  maximum (to base 2) and sum of each head
 */
export const pooledWeight = (scores: readonly number[], stats: readonly { m: number; l: number }[]): number =>
  scores.reduce((sum, score, head) => {
    const { m, l } = stats[head] as { m: number; l: number };
    return sum + 2 ** (score - m) / l;
  }, 0);

/** Slot of the token that comes next. */
export const nextSlot = (span: Span, pinnedSlots: number, ringSlots: number): number =>
  pinnedSlots + ((span.first + span.ring) % ringSlots);

/**
 * Where the oldest ring token goes before the next one is appended: to the next pinned slot, or in the place of the
 * lightest pinned token (the lowest slot of equals) if it is heavier than that; null where it is dropped, or where the
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

/** A token of a prompt and the slot that it stays in. */
export interface Stay {
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
export interface Begin {
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
