import { expect, test } from 'vitest';
import { farthest } from '../../src/bench/spread.js';

const line = [1, 3, 7, 15, 1023].map((context) => ({ context }));

test('the first point is the middle in log space', () => {
  expect(farthest([], line)).toBe(3);
});

test('the next is the farthest from all measured', () => {
  expect(farthest([{ context: 15 }], line)).toBe(4);
  expect(farthest([{ context: 15 }, { context: 1023 }], line)).toBe(0);
});

test('a preferred candidate wins over one that is a little farther', () => {
  const measured = [{ context: 1 }];
  expect(farthest(measured, [{ context: 7 }, { context: 15 }], (i) => i === 0)).toBe(0);
  expect(farthest(measured, [{ context: 3 }, { context: 1023 }], (i) => i === 0)).toBe(1);
});
