/** The float64 reference of rope_kept, and the comparison of its outputs with it. */
import { DEFAULTS } from '../launch.js';
import { dim, type Checker } from '../reference.js';
import { ropeRow } from '../rope/reference.js';
import { packed } from '../shared/dense/rows.reference.js';

/** All heads of a token, each at the position of its evicting row. */
export const reference: Checker = {
  outputs: ['data'],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => {
    const { shape, variant } = s.call;
    const {
      data,
      pooled = 1,
      firstRow = 0,
      first = 0,
      capacity = first + dim(shape, 'rows'),
    } = s.options.ropeKept ?? {};
    const [heads, headDim] = [dim(shape, 'heads'), dim(shape, 'headDim')];
    const width = heads * headDim;
    const [before, after] = [packed(s.input('data'), width, data), packed(s.output('data'), width, data)];
    const expected = Array.from({ length: heads }, (_, head) => {
      const position = s.input('positions')((firstRow + Math.floor(head / pooled)) * capacity + first + row);
      return ropeRow(
        { ...shape, heads: 1 },
        variant,
        s.options.ropeBase ?? DEFAULTS.ropeBase,
        (name) => (name === 'positions' ? () => position : (i) => before(row * width + head * headDim + i)),
        0,
      );
    });
    return { expected: expected.flat(), actual: (i) => after(row * width + i) };
  },
};
