/** The float64 reference of load, and the comparison of its outputs with it. */
import { capacityOf } from '../host/cache-layout.js';
import { dim, dimsOf, type Checker } from '../reference.js';
import { cachedRows } from '../shared/attention/attention.reference.js';

export const reference: Checker = {
  outputs: ['rows'],
  rows: (shape) => dim(shape, 'rows') * dim(shape, 'heads'),
  row: (s, row) => {
    const { rows, heads, width } = dimsOf<'load'>(s);
    const { chunk = rows, first = 0, firstSequence = 0, output, ...o } = s.options.load ?? {};
    const stored = cachedRows(s, 'cache', width, { capacity: capacityOf(o.capacity ?? first + chunk) });
    const [token, head] = [Math.floor(row / heads), row % heads];
    const cached = (firstSequence + Math.floor(token / chunk)) * heads + head;
    return {
      expected: Array.from({ length: width }, (_, i) => stored(cached, first + (token % chunk), i)),
      actual: (i) =>
        s.output('rows')((output?.offset ?? 0) + token * (output?.stride ?? heads * width) + head * width + i),
    };
  },
};
