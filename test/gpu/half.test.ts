/** Half precision: every value survives the way there and back, and rounding is to the nearest, ties to even. */
import { expect, test } from 'vitest';
import { halfBits, halfValue } from '../../kernels/host/half.js';

test('all finite halves come back unchanged', () => {
  for (let bits = 0; bits < 65536; bits++) {
    if (((bits >> 10) & 31) === 31) continue;
    expect(halfBits(halfValue(bits))).toBe(bits);
  }
});

test.each([
  [1 + 2 ** -11, 1],
  [1 + 3 * 2 ** -11, 1 + 2 ** -9],
  [65504, 65504],
  [65519, 65504],
  [65520, Infinity],
  [2 ** -25, 0],
  [3 * 2 ** -25, 2 ** -23],
  [-1e9, -Infinity],
])('%d rounds to %d', (value, rounded) => {
  expect(halfValue(halfBits(value))).toBe(rounded);
});

test('NaN stays NaN', () => {
  expect(halfValue(halfBits(NaN))).toBeNaN();
});
