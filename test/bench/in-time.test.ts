/** Cases as far as there is time, on a clock that the work moves. */
import { expect, test } from 'vitest';
import { inTime } from '../../src/bench/in-time.js';
import { Budget, OUT_OF_TIME } from '../../src/io/budget.js';
import { GpuError } from '../../kernels/host/errors.js';
import { randomOf, SEED } from '../gpu/random.js';

const CASES = Array.from({ length: 40 }, (_, i) => i);

test(`a sample of the cases is reached, in their order, and the budget is kept (LLA_SIM_SEED=${SEED})`, async () => {
  const random = randomOf(SEED);
  const reached = new Set<number>();
  for (let round = 0; round < 20; round++) {
    // In whole tenths of a second, which add up exactly.
    let at = 0;
    const budget = new Budget(600, () => at);
    const done: number[] = [];
    const { results, notRun } = await inTime(
      CASES,
      { budget, kinds: ['case'], piece: 'case', seed: SEED + round },
      (one, before) => {
        done.push(before);
        at += random.whole(20, 40);
        return Promise.resolve(one);
      },
    );
    expect(at).toBeLessThanOrEqual(600);
    expect(at).toBeGreaterThan(500);
    const ended = results.map(({ result }) => result);
    expect(ended).toEqual([...ended].sort((a, b) => a - b));
    expect(notRun.every(({ reason }) => reason === OUT_OF_TIME)).toBe(true);
    expect([...ended, ...notRun.map(({ one }) => one)].sort((a, b) => a - b)).toEqual(CASES);
    expect(done).toEqual([...ended.keys()]);
    for (const one of ended) reached.add(one);
  }
  // Those that are reached are drawn anew by each seed.
  expect(reached.size).toBeGreaterThan(35);
});

test('without a budget all are, until stopped; what the device cannot do is left out, others end it', async () => {
  const refusing = (fault: 'unsupported' | 'lost') => (one: number) =>
    one === 3 ? Promise.reject(new GpuError(fault, 'no')) : Promise.resolve(2 * one);
  const { results, notRun } = await inTime(CASES, { kinds: [], seed: SEED }, refusing('unsupported'));
  expect(results).toEqual(CASES.filter((one) => one !== 3).map((one) => ({ one, result: 2 * one })));
  expect(notRun).toEqual([{ one: 3, reason: 'no' }]);
  await expect(inTime(CASES, { kinds: [] }, refusing('lost'))).rejects.toThrow('no');
  let left = 5;
  const some = await inTime(CASES.slice(4), { kinds: [], stopped: () => left-- === 0 }, refusing('lost'));
  expect([some.results.map(({ one }) => one), some.notRun]).toEqual([[4, 5, 6, 7, 8], []]);
});
