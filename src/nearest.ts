/** The likeliest name behind a typing error: shared by every catalogue that is looked up by name. */

/** Edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`. */
function editDistance(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1];
      let best = Math.min(
        (last[j] as number) + 1,
        (row[j - 1] as number) + 1,
        (last[j - 1] as number) + (same ? 0 : 1),
      );
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        best = Math.min(best, (beforeLast[j - 2] as number) + 1);
      row.push(best);
    }
    beforeLast = last;
    last = row;
  }
  return last[b.length] as number;
}

/** A name within another says nothing of it where it has fewer letters, or the other so many times as many. */
const SHORTEST_WITHIN = 3;
const MOST_TIMES_LONGER = 5;

/**
 * The candidates closest to `name`, ignoring case and punctuation, closest first; none that is too far to be worth
 * suggesting (more than a third of the letters differ, unless one name contains the other).
 */
export function nearestNames(name: string, candidates: readonly string[], most: number): string[] {
  const plain = (s: string): string => s.toLowerCase().replace(/[^a-z0-9]/g, '');
  const wanted = plain(name.slice(0, 64));
  if (wanted.length < 2) return [];
  const near: { name: string; distance: number }[] = [];
  for (const candidate of candidates) {
    const other = plain(candidate);
    const [short, long] = wanted.length < other.length ? [wanted, other] : [other, wanted];
    const tells = short.length >= SHORTEST_WITHIN && MOST_TIMES_LONGER * short.length >= long.length;
    const contained = tells && long.includes(short);
    // All that was written stands in the candidate, or only a part of it.
    const each = other.includes(wanted) ? 1 / 64 : 1 / 16;
    const distance = contained ? each * Math.abs(other.length - wanted.length) : editDistance(wanted, other);
    if (contained || distance <= Math.max(wanted.length, other.length) / 3) near.push({ name: candidate, distance });
  }
  return near
    .sort((a, b) => a.distance - b.distance)
    .slice(0, most)
    .map((n) => n.name);
}

/** The closest candidate, or undefined when none is close. */
export const nearestName = (name: string, candidates: readonly string[]): string | undefined =>
  nearestNames(name, candidates, 1)[0];
