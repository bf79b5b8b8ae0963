/** Samples of a product of factors in which every allowed pair of values meets at least once. */
import type { Random } from './random.js';

export type Factors = Readonly<Record<string, readonly (string | number)[]>>;
export type Case<F extends Factors> = { [K in keyof F]: F[K][number] };

/** Completions of a pair that are tried before the one with the most new pairs is taken. */
const TRIES = 24;

const keyOf = (a: string, x: string | number, b: string, y: string | number): string => `${a}=${x} ${b}=${y}`;

/** The pairs of values that a case holds. */
export function pairsOf(of: Readonly<Record<string, string | number>>): string[] {
  const entries = Object.entries(of);
  return entries.flatMap(([a, x], i) => entries.slice(i + 1).map(([b, y]) => keyOf(a, x, b, y)));
}

/** Cases, those with the most new pairs first, until every allowed pair is met or `most` cases are made. */
export function pairwise<F extends Factors>(
  factors: F,
  random: Random,
  allowed: (of: Case<F>) => boolean = () => true,
  most = Infinity,
): Case<F>[] {
  const names = Object.keys(factors);
  const open = new Map<string, Readonly<Record<string, string | number>>>();
  names.forEach((a, i) => {
    for (const b of names.slice(i + 1)) {
      for (const x of factors[a] ?? [])
        for (const y of factors[b] ?? []) open.set(keyOf(a, x, b, y), { [a]: x, [b]: y });
    }
  });
  const cases: Case<F>[] = [];
  while (open.size > 0 && cases.length < most) {
    const [pair, fixed] = random.pick([...open]);
    let best: { of: Case<F>; met: number } | null = null;
    for (let i = 0; i < TRIES; i++) {
      const of = Object.fromEntries(
        names.map((name) => [name, fixed[name] ?? random.pick(factors[name] ?? [])]),
      ) as Case<F>;
      if (!allowed(of)) continue;
      const met = pairsOf(of).filter((p) => open.has(p)).length;
      if (!best || met > best.met) best = { of, met };
    }
    // No completion of this pair is allowed, as far as was tried.
    if (!best) open.delete(pair);
    else {
      for (const p of pairsOf(best.of)) open.delete(p);
      cases.push(best.of);
    }
  }
  return cases;
}

/** All allowed cases of the product. */
export function product<F extends Factors>(factors: F, allowed: (of: Case<F>) => boolean = () => true): Case<F>[] {
  let cases: Record<string, string | number>[] = [{}];
  for (const [name, values] of Object.entries(factors))
    cases = cases.flatMap((c) => values.map((value) => ({ ...c, [name]: value })));
  return (cases as Case<F>[]).filter(allowed);
}
