/** Cases as far as there is time, on a clock that the work moves. */
import { expect, test } from 'vitest';
import { Budget } from '../../src/io/budget.js';
import { inTime } from '../../src/validate/in-time.js';
import { randomOf, SEED } from '../gpu/random.js';

const CASES = Array.from({ length: 40 }, (_, i) => i);

test(`a sample of the cases is reached, in their order, and the budget is kept (LLA_SIM_SEED=${SEED})`, async () => {
  const random = randomOf(SEED);
  const reached = new Set<number>();
  for (let round = 0; round < 20; round++) {
    let at = 0;
    const budget = new Budget(60, () => at);
    const done: number[] = [];
    const { results, notReached } = await inTime(
      CASES,
      { budget, kind: 'case', seed: SEED + round, stopped: undefined },
      (one, before) => {
        done.push(before);
        at += random.whole(20, 40) / 10;
        return Promise.resolve(one);
      },
    );
    expect(at).toBeLessThanOrEqual(60);
    expect(at).toBeGreaterThan(50);
    expect(results).toEqual([...results].sort((a, b) => a - b));
    expect(results.length + notReached).toBe(40);
    expect(done).toEqual([...results.keys()]);
    for (const one of results) reached.add(one);
  }
  // Those that are reached are drawn anew by each seed.
  expect(reached.size).toBeGreaterThan(35);
});

test('without a budget all are, and until it is stopped', async () => {
  const rules = { budget: undefined, kind: 'case', seed: SEED };
  const work = (one: number): Promise<number> => Promise.resolve(one);
  expect(await inTime(CASES, { ...rules, stopped: undefined }, work)).toEqual({ results: CASES, notReached: 0 });
  let left = 5;
  const some = await inTime(CASES, { ...rules, stopped: () => left-- === 0 }, work);
  expect([some.results.length, some.notReached]).toEqual([5, 35]);
});
