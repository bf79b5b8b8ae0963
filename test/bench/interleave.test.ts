/** Measuring in turn, the paths of attention, and comparing with a calibration, on a clock that is a formula. */
import { describe, expect, test } from 'vitest';
import { interleave, ratioOf, sumOf } from '../../src/bench/interleave.js';
import { shareRatio } from '../../src/bench/regression/calibration.js';
import { CASE_GROUPS, groupOf, rooflineCases } from '../../src/bench/regression/cases.js';
import { pathRatios } from '../../src/bench/regression/roofline.js';
import { randomFrom, verdictOf } from '../../src/bench/regression/statistics.js';
import { median } from '../../src/statistics.js';
import { IMPLEMENTED } from '../../src/gpu/index.js';

const seed = Number(process.env.LLA_SIM_SEED ?? Date.now() % 2 ** 31);

describe(`in turn (LLA_SIM_SEED=${seed})`, () => {
  test('every round has each once, half of them backwards, and a linear drift cancels', async () => {
    let at = 0;
    const order: string[] = [];
    const measure = (name: string, seconds: number) => () => {
      order.push(name);
      at += 1;
      return Promise.resolve(seconds * (1 + 0.01 * at));
    };
    const times = await interleave([measure('a', 1), measure('b', 2), measure('c', 3)], {
      seconds: 0,
      leastRounds: 40,
      mostRounds: 90,
      seed,
      clockNow: () => at,
    });
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
    expect((await interleave(one, { ...rules, seconds: 10 }))[0]).toHaveLength(10);
    expect(
      (await interleave(one, { ...rules, seconds: 1e9, settled: ([t]) => (t?.length ?? 0) >= 7 }))[0],
    ).toHaveLength(7);
    expect((await interleave(one, { ...rules, seconds: 1e9 }))[0]).toHaveLength(50);
  });

  test('a phase of half speed does not move a ratio within rounds, though it doubles the times', () => {
    const random = randomFrom(seed);
    const load = Array.from({ length: 60 }, (_, i) => (Math.floor(i / 15) % 2 === 0 ? 1 : 2) * (1 + 0.02 * random()));
    const { estimate, low, high } = ratioOf(
      load.map((l) => 1.3 * l),
      load,
      seed,
    );
    expect(estimate).toBeCloseTo(1.3, 10);
    expect(high / low).toBeLessThan(1.001);
    expect(
      sumOf([
        [1, 2],
        [3, 4],
      ]),
    ).toEqual([4, 6]);
  });
});

test('block-absorbed is compared with the faster rebuild and with absorbed, by sums of kernels', () => {
  const {
    paths: [set],
  } = rooflineCases(true);
  if (!set) throw new Error('no paths');
  const times = new Map<string, number[]>();
  const put = (path: keyof typeof set.paths, each: number): void => {
    for (const c of set.paths[path])
      times.set(`${c.kernel} ${c.variant} ${JSON.stringify(c.shape)}`, [each, each, each, each]);
  };
  put('absorbed', 1);
  put('materialised rebuild', 2);
  put('fused rebuild', 5);
  put('block-absorbed', 3);
  const sums = 3 * set.paths['block-absorbed'].filter((c) => IMPLEMENTED.includes(c.kernel)).length;
  const found = pathRatios(set, times, seed);
  expect(found.map((r) => [r.above, r.below])).toEqual([
    ['block-absorbed', 'fused rebuild'],
    ['block-absorbed', 'absorbed'],
  ]);
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

/**
 * `--against` a calibration on a machine with phases of half speed, which change every 12 rounds or so, and 3 % noise.
 */
describe(`against a calibration under load (LLA_SIM_SEED=${seed})`, () => {
  const ceilingsThen = {
    copyBytesPerSecond: 1e9,
    readBytesPerSecond: 1e9,
    f32FlopsPerSecond: 1e10,
    f16FlopsPerSecond: null,
    matrixFlopsPerSecond: null,
  };
  const call = { kernel: 'swiglu', variant: 'f32', shape: { rows: 1000, width: 1000 } } as const;

  function verdicts(slowdown: number): { paired: string[]; apart: string[] } {
    const random = randomFrom(seed);
    const [paired, apart]: [string[], string[]] = [[], []];
    for (let run = 0; run < 100; run++) {
      const jitter = (): number => 1 + 0.06 * (random() - 0.5);
      let [load, until] = [1, 0];
      const loads = Array.from({ length: 24 }, (_, i) => {
        if (i >= until) [load, until] = [random() < 0.5 ? 1 : 2, i + 6 + 12 * random()];
        return load;
      });
      const now = loads.map((l) => 0.02 * slowdown * l * jitter());
      const then = Array.from({ length: 8 }, () => 0.02 * jitter());
      const ratesNow = loads.map((l) => 1e9 / l / jitter());
      paired.push(verdictOf(shareRatio({ call, then, now, ceilingsThen, ratesNow, seed: run }).ratio, 0.05));
      // The ceiling as measured once, at another moment than the call.
      const other = random() < 0.5 ? 1e9 : 5e8;
      apart.push(
        verdictOf(shareRatio({ call, then, now, ceilingsThen, ratesNow: now.map(() => other), seed: run }).ratio, 0.05),
      );
    }
    return { paired, apart };
  }
  const count = (list: readonly string[]): number => list.filter((v) => v === 'slower').length;

  test('an unchanged kernel hardly ever alarms, and often does with a ceiling of another moment', () => {
    const { paired, apart } = verdicts(1);
    expect(count(paired)).toBeLessThanOrEqual(2);
    expect(count(apart)).toBeGreaterThan(10);
  });

  test('a slowdown of 25 % is found in nearly every run', () => {
    expect(count(verdicts(1.25).paired)).toBeGreaterThanOrEqual(94);
  });

  test('a machine that is slower as a whole cancels', () => {
    const rounds = Array.from({ length: 20 }, (_, i) => 1 + (i % 3));
    const input = { call, then: [0.01, 0.01, 0.01], now: rounds.map((l) => 0.02 * l), ceilingsThen, seed: 1 };
    expect(shareRatio({ ...input, ratesNow: rounds.map((l) => 5e8 / l) }).ratio.estimate).toBeCloseTo(1, 12);
    expect(shareRatio({ ...input, ratesNow: rounds.map((l) => 1e9 / l) }).ratio.estimate).toBeCloseTo(2, 12);
    expect(shareRatio({ ...input, ratesNow: rounds.map((l) => 1e9 / l) }).medianSeconds.now).toBe(median(input.now));
  });
});
