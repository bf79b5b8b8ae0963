/** The float64 reference of attend_current, and the comparison of its outputs with it. */
import type { CurrentOptions } from '../attention-options.js';
import { dim, type Checker } from '../reference.js';
import { attended, currentToken, withToken } from '../shared/attention/merge.reference.js';

export const reference: Checker = {
  outputs: ['output', 'stats'],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => {
    const [keyWidth, width] = [dim(s.call.shape, 'keyWidth'), dim(s.call.shape, 'valueWidth')];
    const { heads, group }: CurrentOptions = s.options.current ?? { heads: 1, group: 1 };
    const kvHead = Math.floor((row % heads) / group);
    const o = Array.from(
      { length: width },
      (_, i) => s.input('output')(row * width + i) + s.input('valueMeans')(kvHead * width + i),
    );
    const { score, value } = currentToken(s, row, keyWidth, width);
    return attended(
      s,
      row,
      withToken({ o, m: s.input('stats')(2 * row), l: s.input('stats')(2 * row + 1) }, score, value),
    );
  },
};
