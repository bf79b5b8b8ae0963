/** Measuring in turn, and the paths of attention, on a clock that is a formula. */
import { describe, expect, test } from 'vitest';
import { interleave, ratioOf, sumOf } from '../../src/bench/rounds.js';
import { CASE_GROUPS, groupOf, rooflineCases } from '../../src/bench/regression/cases.js';
import { pathRatios } from '../../src/bench/regression/roofline.js';
import { randomFrom } from '../../src/numbers/random.js';
import { SEED as seed } from '../gpu/random.js';

describe(`in turn (LLA_SIM_SEED=${seed})`, () => {
  test('every round has each once, half of them backwards, and a linear drift cancels', async () => {
    let at = 0;
    const order: string[] = [];
    const measure = (name: string, seconds: number) => () => {
      order.push(name);
      at += 1;
      return Promise.resolve(seconds * (1 + 0.01 * at));
    };
    const rules = { seconds: 0, leastRounds: 40, mostRounds: 90, seed, clockNow: () => at };
    const times = await interleave([measure('a', 1), measure('b', 2), measure('c', 3)], rules);
    expect(times.map((t) => t.length)).toEqual([40, 40, 40]);
    const rounds = Array.from({ length: 40 }, (_, i) => order.slice(3 * i, 3 * i + 3).join(''));
    for (const [i, round] of rounds.entries())
      expect(i % 2 === 0 ? ['abc', 'bca', 'cab'] : ['cba', 'bac', 'acb']).toContain(round);
    expect(ratioOf(times[2] as number[], times[0] as number[], seed).estimate).toBeCloseTo(3, 1);
  });

  test('it ends when the time is spent, when told so, or at the most rounds', async () => {
    let at = 0;
    const one = [() => Promise.resolve((at += 1))];
    const rules = { leastRounds: 2, mostRounds: 50, seed, clockNow: () => at };
    const left: number[] = [];
    const onRound = (_: number, elapsed: number, total: number): unknown => left.push(total - elapsed);
    expect((await interleave(one, { ...rules, seconds: 10, onRound }))[0]).toHaveLength(10);
    // Seconds that are left.
    expect(left).toEqual([9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
    const settled = ([t]: readonly (readonly number[])[]): boolean => (t?.length ?? 0) >= 7;
    expect((await interleave(one, { ...rules, seconds: 1e9, settled }))[0]).toHaveLength(7);
    expect((await interleave(one, { ...rules, seconds: 1e9 }))[0]).toHaveLength(50);
  });

  test('a phase of half speed does not move a ratio within rounds, though it doubles the times', () => {
    const random = randomFrom(seed);
    const load = Array.from({ length: 60 }, (_, i) => (Math.floor(i / 15) % 2 === 0 ? 1 : 2) * (1 + 0.02 * random()));
    const slower = load.map((l) => 1.3 * l);
    const { estimate, low, high } = ratioOf(slower, load, seed);
    expect(estimate).toBeCloseTo(1.3, 10);
    expect(high / low).toBeLessThan(1.001);
    expect(sumOf([load, slower])).toEqual(load.map((l, i) => l + slower[i]!));
  });
});

test('block-absorbed is compared with the faster rebuild and with absorbed, by sums of kernels', () => {
  const set = rooflineCases(true).paths[0]!;
  const times = new Map<string, number[]>();
  const put = (path: keyof typeof set.paths, each: number): void => {
    for (const c of set.paths[path])
      times.set(`${c.kernel} ${c.variant} ${JSON.stringify(c.shape)}`, Array<number>(4).fill(each));
  };
  put('absorbed', 1);
  put('materialised rebuild', 2);
  put('fused rebuild', 5);
  put('block-absorbed', 3);
  const sums = 3 * set.paths['block-absorbed'].length;
  const found = pathRatios(set, times, seed);
  const pairs = found.map((r) => `${r.above} : ${r.below}`);
  expect(pairs).toEqual(['block-absorbed : fused rebuild', 'block-absorbed : absorbed']);
  expect(found[0]?.ratio.estimate).toBeCloseTo(sums / 5, 12);
  put('fused rebuild', 7);
  expect(pathRatios(set, times, seed)[0]?.below).toBe('materialised rebuild');
  expect(pathRatios(set, times, seed)[0]?.ratio.estimate).toBeCloseTo(sums / 6, 12);
  expect(pathRatios(set, new Map(), seed)).toEqual([]);
});

test('every group has calls', () => {
  const { calls } = rooflineCases(false);
  for (const group of CASE_GROUPS) expect(calls.some((c) => groupOf(c.kernel) === group)).toBe(true);
});
