/** Cases of a section, as far as there is time. */
import type { Budget } from '../io/budget.js';
import { mix } from '../numbers/hash.js';

/**
 * Works through cases until the next would not end in time. Their order is drawn from the seed, so that those that are
 * reached are a sample of all. Of the first nothing is known: it is tried while there is any time.
 * @param budget without one there is time for all
 * @param kind of the pieces of the budget
 * @returns results in the order of the cases, and how many cases were not reached
 */
export async function inTime<T, R>(
  cases: readonly T[],
  rules: {
    readonly budget: Budget | undefined;
    readonly kind: string;
    readonly seed: number;
    readonly stopped: (() => boolean) | undefined;
  },
  work: (one: T, done: number) => Promise<R>,
): Promise<{ readonly results: R[]; readonly notReached: number }> {
  const { budget, kind, seed } = rules;
  const order = [...cases.keys()].sort((a, b) => mix(seed + a) - mix(seed + b));
  const found = new Map<number, R>();
  for (const [done, i] of order.entries()) {
    if (rules.stopped?.() || budget?.fits(kind) === false) break;
    const own = (): Promise<R> => work(cases[i] as T, done);
    found.set(i, budget ? await budget.piece(kind, own) : await own());
  }
  return {
    results: [...found.keys()].sort((a, b) => a - b).map((i) => found.get(i) as R),
    notReached: cases.length - found.size,
  };
}
