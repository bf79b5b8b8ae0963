/** Quantiles lie between neighbours, whatever the order of the values. */
import { expect, test } from 'vitest';
import { median, quantile } from '../../src/numbers/statistics.js';

test('the median of an even count lies between', () => {
  expect(median([4, 1, 3, 2])).toBe(2.5);
  expect(median([7, 1, 9])).toBe(7);
  expect(median([])).toBeNaN();
});

test('a quantile lies between its neighbours', () => {
  expect(quantile([20, 30, 10], 0.25)).toBe(15);
  expect(quantile([7], 0.9)).toBe(7);
  expect(quantile([], 0.5)).toBeNaN();
  expect(quantile(Float64Array.of(10, 20, 30), 0.25)).toBe(15);
  expect(quantile([10, 20, 30], 1)).toBe(30);
});
