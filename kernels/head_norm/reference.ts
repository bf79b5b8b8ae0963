/** The float64 reference of head_norm, and the comparison of its outputs with it. */
import { DEFAULTS } from '../launch.js';
import { dim, type Checker } from '../reference.js';
import { packed } from '../shared/dense/rows.reference.js';

export const reference: Checker = {
  outputs: ['target'],
  rows: (shape) => dim(shape, 'rows') * dim(shape, 'heads'),
  row: (s, row) => {
    const [heads, width] = [dim(s.call.shape, 'heads'), dim(s.call.shape, 'headDim')];
    const placed = s.options.placement?.output;
    const [before, after] = [s.input('target'), s.output('target')].map((of) => packed(of, heads * width, placed));
    const x = Array.from({ length: width }, (_, i) => (before as (i: number) => number)(row * width + i));
    const squares = x.reduce((sum, value) => sum + value * value, 0);
    const size = Math.sqrt(squares / width + (s.options.eps ?? DEFAULTS.eps));
    return {
      expected: x.map((value, i) => (value / size) * s.input('weight')(i)),
      actual: (i) => (after as (i: number) => number)(row * width + i),
    };
  },
};
