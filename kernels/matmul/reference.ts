/** The float64 reference of matmul, and the comparison of its outputs with it. */
import { mix } from '../../src/numbers/hash.js';
import { dim, type Checker } from '../reference.js';
import type { Input } from '../shared/dense/rows.reference.js';
import type { Shape } from '../spec.js';
import { pairsOf } from './launch.js';

/** Columns of a product that are checked in a row. */
const MOST_COLUMNS = 64;

export const reference: Checker = {
  outputs: ['y'],
  rows: (shape) => dim(shape, 'groups') * dim(shape, 'm'),
  row: (s, row) => {
    const n = dim(s.call.shape, 'n');
    const count = Math.min(n, MOST_COLUMNS);
    const from = mix(row) % (n - count + 1);
    return {
      expected: matmulRow(s.call.shape, s.input, row, from, from + count),
      actual: (i) => s.output('y')(row * n + from + i),
    };
  },
};

/** Row `row` (of group × m) of y = x W, columns [from, to). */
function matmulRow(shape: Shape, input: Input, row: number, from: number, to: number): number[] {
  const [m, k] = [dim(shape, 'm'), dim(shape, 'k')];
  const stride = 2 * pairsOf(dim(shape, 'n'));
  const group = Math.floor(row / m);
  const x = input('x');
  const w = input('weights');
  return Array.from({ length: to - from }, (_, c) => {
    let sum = 0;
    for (let i = 0; i < k; i++) sum += x(row * k + i) * w((group * k + i) * stride + from + c);
    return sum;
  });
}
