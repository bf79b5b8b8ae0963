import { expect, test } from 'vitest';
import { mostTelling } from '../../src/bench/spread.js';

const line = (...shares: number[]) =>
  [1, 3, 7, 15, 1023].map((context, i) => ({ shape: { context }, share: shares[i] ?? 1 }));

test('the first point is the centre of the weights, in log space', () => {
  expect(mostTelling([], line())).toBe(2);
  expect(mostTelling([], line(0, 0, 0, 0, 1))).toBe(4);
});

test('the next is where the weighted distances from all measured fall most', () => {
  expect(mostTelling([{ context: 7 }], line())).toBe(4);
  expect(mostTelling([{ context: 7 }], line(1, 1, 1, 1, 0))).toBe(0);
  expect(mostTelling([{ context: 7 }, { context: 1023 }], line())).toBe(0);
});
