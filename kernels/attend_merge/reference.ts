/** The float64 reference of attend_merge, and the comparison of its outputs with it. */
import { dim, type Checker } from '../reference.js';
import { attended, currentToken, mergeSplits, withToken } from '../shared/attention/merge.reference.js';

export const reference: Checker = {
  outputs: ['output', 'stats'],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => {
    const [splits, width] = [dim(s.call.shape, 'splits'), dim(s.call.shape, 'width')];
    const partial = s.input('partials');
    const rows = Array.from({ length: splits }, (_, split) => {
      const at = (row * splits + split) * (width + 2);
      return {
        o: Array.from({ length: width }, (_, i) => partial(at + i)),
        m: partial(at + width),
        l: partial(at + width + 1),
      };
    });
    const merged = mergeSplits(rows, width);
    if (s.call.variant !== 'current') return attended(s, row, merged);
    const { score, value } = currentToken(s, row, dim(s.call.shape, 'keyWidth'), width);
    return attended(s, row, withToken(merged, score, value));
  },
};
