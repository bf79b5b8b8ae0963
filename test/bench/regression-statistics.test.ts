/** The statistics of a paired comparison: exact where they can be, and calibrated where they are random. */
import { describe, expect, test } from 'vitest';
import {
  bootstrap,
  correlationFactor,
  exponential,
  isSettled,
  midmean,
  verdictOf,
} from '../../src/bench/regression/statistics.js';
import { randomFrom } from '../../src/numbers/random.js';
import type { Interval } from '../../src/numbers/statistics.js';

const around = (estimate: number, low: number, high: number): Interval => ({ estimate, low, high });

test('the midmean is the mean of the middle half, and blind to the tails', () => {
  expect(midmean([1, 2, 3, 4, 5, 6, 7, 8])).toBe(4.5);
  expect(midmean([-1e9, 2, 3, 4, 5, 6, 7, 1e9])).toBe(4.5);
  expect(midmean([9, 1, 2])).toBe(2);
  expect(midmean([4, 2])).toBe(3);
  expect(() => midmean([])).toThrow(RangeError);
});

describe('bootstrap', () => {
  test('the same values and seed give the same interval, another seed another one', () => {
    const values = Array.from({ length: 40 }, (_, i) => Math.sin(i));
    expect(bootstrap(values, 7)).toEqual(bootstrap(values, 7));
    expect(bootstrap(values, 7)).not.toEqual(bootstrap(values, 8));
  });

  test('values without spread have an interval without width', () => {
    expect(bootstrap([0.25, 0.25, 0.25, 0.25, 0.25], 1)).toEqual(around(0.25, 0.25, 0.25));
  });

  test('it covers the truth about as often as it says, under heavy tails', () => {
    const random = randomFrom(3);
    const normal = (): number => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
    let covered = 0;
    for (let trial = 0; trial < 200; trial++) {
      const { low, high } = bootstrap(
        Array.from({ length: 32 }, () => 0.1 + 0.05 * normal() * (random() < 0.1 ? 8 : 1)),
        trial,
      );
      if (low <= 0.1 && 0.1 <= high) covered++;
    }
    expect(covered / 200).toBeGreaterThan(0.88);
    expect(covered / 200).toBeLessThan(0.99);
  });
});

describe('verdict', () => {
  test.each([
    ['slower', around(1.1, 1.051, 1.2)],
    ['unclear', around(1.1, 1.049, 1.2)],
    ['unclear', around(1.0, 0.8, 1.3)],
    ['unclear', around(1.04, 1.01, 1.06)],
    ['same', around(1.0, 0.96, 1.05)],
    ['faster', around(0.9, 0.8, 0.951)],
    ['unclear', around(0.9, 0.8, 0.96)],
    ['slower', around(1.2, 1.18, 1.22), 0.15],
    ['same', around(1.2, 1.18, 1.22), 0.25],
  ] as [string, Interval, number?][])('%s: %j at 5 %%, or at %s', (verdict, ratio, threshold = 0.05) => {
    expect(verdictOf(ratio, threshold)).toBe(verdict);
  });

  test('rounds end when the verdict is clear and the interval narrow, not before', () => {
    expect(isSettled(around(1, 0.99, 1.01), 0.05)).toBe(true);
    expect(isSettled(around(1.5, 1.3, 1.7), 0.05)).toBe(false);
    expect(isSettled(around(1.05, 1.045, 1.055), 0.05)).toBe(false);
  });
});

test('logarithms come back as ratios', () => {
  expect(exponential(around(0, Math.log(0.5), Math.log(2)))).toEqual(around(1, 0.5, 2));
});

describe('noise that lasts for several rounds', () => {
  /** Normal values of which each resembles the one before by `rho`. */
  const series = (rho: number, count: number, seed: number): number[] => {
    const random = randomFrom(seed);
    const normal = (): number => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
    let value = normal();
    return Array.from({ length: count }, () => (value = rho * value + Math.sqrt(1 - rho ** 2) * normal()));
  };

  test('widens the interval by √((1 + ρ) / (1 − ρ)), and never narrows it', () => {
    expect(Math.abs(correlationFactor(series(0.5, 5000, 1)) - Math.sqrt(3))).toBeLessThan(0.15);
    expect(correlationFactor(series(0, 5000, 2))).toBeLessThan(1.05);
    expect(correlationFactor(series(-0.5, 5000, 3))).toBe(1);
    expect(correlationFactor([1, 1, 1, 1, 1, 1, 1, 1])).toBe(1);
    expect(correlationFactor([1, 2, 3])).toBe(1);
  });

  test('the truth lies outside far less often than with rounds taken as independent', () => {
    let [outside, without] = [0, 0];
    for (let seed = 1; seed <= 300; seed++) {
      const values = series(0.5, 24, seed);
      const { estimate, low, high } = bootstrap(values, seed);
      const factor = correlationFactor(values);
      if (low > 0 || high < 0) outside++;
      if (estimate - (estimate - low) / factor > 0 || estimate + (high - estimate) / factor < 0) without++;
    }
    expect(without).toBeGreaterThan(0.15 * 300);
    expect(outside).toBeLessThan(0.75 * without);
  });
});
