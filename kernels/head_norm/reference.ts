/** The float64 reference of head_norm, and the comparison of its outputs with it. */
import { DEFAULTS } from '../launch.js';
import { dim, dimsOf, type Checker } from '../reference.js';
import { packed } from '../shared/dense/rows.reference.js';

export const reference: Checker = {
  outputs: ['target'],
  rows: (shape) => dim(shape, 'rows') * dim(shape, 'heads'),
  row: (s, row) => {
    const { heads, headDim: width } = dimsOf<'head_norm'>(s);
    const placed = s.options.placement?.output;
    const before = packed(s.input('target'), heads * width, placed);
    const after = packed(s.output('target'), heads * width, placed);
    const x = Array.from({ length: width }, (_, i) => before(row * width + i));
    const squares = x.reduce((sum, value) => sum + value * value, 0);
    const size = Math.sqrt(squares / width + (s.options.eps ?? DEFAULTS.eps));
    return {
      expected: x.map((value, i) => (value / size) * s.input('weight')(i)),
      actual: (i) => after(row * width + i),
    };
  },
};
