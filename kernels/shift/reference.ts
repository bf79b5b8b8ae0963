/** The float64 reference of shift, and the comparison of its outputs with it. */
import { DEFAULTS } from '../launch.js';
import { dim, type Checker } from '../reference.js';

export const reference: Checker = {
  outputs: ['target', 'states'],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => {
    const width = dim(s.call.shape, 'width');
    const factor = s.options.factor ?? DEFAULTS.factor;
    const position = s.input('positions')(row);
    const state = (parity: number, i: number): number => s.input('states')((2 * row + parity) * width + i);
    const own = position % 2;
    const target = Array.from(
      { length: width },
      (_, i) => s.input('embedding')(row * width + i) + (position > 0 ? factor * state(1 - own, i) : 0),
    );
    const states = [0, 1].map((parity) =>
      Array.from({ length: width }, (_, i) => (parity === own ? s.input('target')(row * width + i) : state(parity, i))),
    );
    return {
      expected: [...target, ...states.flat()],
      actual: (i) =>
        i < width ? s.output('target')(row * width + i) : s.output('states')(2 * row * width + i - width),
    };
  },
};
