/** The float64 reference of matmul, and the comparison of its outputs with it. */
import { mix } from '../../src/numbers/hash.js';
import { dim, dimsOf, type Checker } from '../reference.js';
import { pairsOf } from './launch.js';

/** Columns of a product that are checked in a row. */
const MOST_COLUMNS = 64;

export const reference: Checker = {
  outputs: ['y'],
  rows: (shape) => dim(shape, 'groups') * dim(shape, 'm'),
  row: (s, row) => {
    const { m, k, n } = dimsOf<'matmul'>(s);
    const [x, w] = [s.input('x'), s.input('weights')];
    const stride = 2 * pairsOf(n);
    const group = Math.floor(row / m);
    const count = Math.min(n, MOST_COLUMNS);
    const from = mix(row) % (n - count + 1);
    const expected = Array.from({ length: count }, (_, c) => {
      let sum = 0;
      for (let i = 0; i < k; i++) sum += x(row * k + i) * w((group * k + i) * stride + from + c);
      return sum;
    });
    return { expected, actual: (i) => s.output('y')(row * n + from + i) };
  },
};
