/** The float64 reference of join_chosen, and the comparison of its outputs with it. */
import { dim, type Checker } from '../reference.js';

export const reference: Checker = {
  outputs: ['output', 'base'],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => {
    const width = dim(s.call.shape, 'width');
    const { heads, group, listWords = 1, ...at } = s.options.current ?? { heads: 1, group: 1 };
    const kvWidth = (heads / group) * width;
    const [sequence, head] = [Math.floor(row / heads), row % heads];
    const vector = (name: string, { offset, stride }: { offset: number; stride: number }, of: number) => {
      const first = offset + sequence * stride + of * width;
      return Array.from({ length: width }, (_, i) => s.input(name)(first + i));
    };
    const query = vector('queries', at.queries ?? { offset: 0, stride: heads * width }, head);
    const kvHead = Math.floor(head / group);
    const key = vector('newRows', at.keys ?? { offset: 0, stride: 2 * kvWidth }, kvHead);
    const value = vector('newRows', at.values ?? { offset: kvWidth, stride: 2 * kvWidth }, kvHead);
    const score = query.reduce((sum, q, i) => sum + q * (key[i] as number), 0) * width ** -0.5 * Math.LOG2E;
    const share = s.inputWords('chosen')(row * listWords) >>> 31 === 1 ? 2 ** score : 0;
    const pair = (name: string): number => s.input(name)(2 * row + 1) * 2 ** s.input(name)(2 * row);
    const rest = pair('partStats');
    const mixed = Array.from(
      { length: width },
      (_, i) => (rest * s.input('part')(row * width + i) + share * (value[i] as number)) / (rest + share),
    );
    const begins = s.call.variant === 'begin';
    const mass = begins ? (rest + share) / pair('stats') : s.input('base')(row * (width + 1) + width);
    const from = (i: number): number =>
      begins ? s.input('output')(row * width + i) : s.input('base')(row * (width + 1) + i);
    return {
      expected: [...mixed.map((o, i) => from(i) + (begins ? -1 : 1) * mass * o), mass],
      actual: (i) =>
        i < width && !begins ? s.output('output')(row * width + i) : s.output('base')(row * (width + 1) + i),
    };
  },
};
