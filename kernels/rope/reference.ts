/** The float64 reference of rope, and the comparison of its outputs with it. */
import { rotaryFrequencies } from '../host/rotary.js';
import { DEFAULTS } from '../launch.js';
import { dim, type Checker, type Scalars } from '../reference.js';
import { packed, type Input } from '../shared/dense/rows.reference.js';
import type { Shape } from '../spec.js';

/**
 * All heads of a row, read from the target where they are written there; and a row's other floats, which must not
 * change.
 */
export const reference: Checker = {
  outputs: ['data', 'target'],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => {
    const { shape, variant } = s.call;
    const { data, target, targetHeads, positionOffset = 0, bias = false } = s.options.rope ?? {};
    const width = dim(shape, 'heads') * dim(shape, 'headDim');
    const moved = target ? (targetHeads ?? dim(shape, 'heads')) * dim(shape, 'headDim') : 0;
    const before = packed(s.input('data'), width, data);
    const input = (name: string): Scalars =>
      name === 'positions'
        ? (i) => s.input(name)(i) + positionOffset
        : name === 'data' && bias
          ? (i) => before(i) + s.input('bias')(i % width)
          : before;
    const inPlace = packed(s.output('data'), width, data);
    const headDim = dim(shape, 'headDim');
    const elsewhere = (i: number): number =>
      s.output('target')(
        (target?.offset ?? 0) +
          row * (target?.stride ?? 0) +
          Math.floor(i / headDim) * (target?.head ?? headDim) +
          (i % headDim),
      );
    return {
      // Heads that are written to the target must be unchanged in the source.
      expected: [
        ...ropeRow(shape, variant, s.options.ropeBase ?? DEFAULTS.ropeBase, input, row),
        ...Array.from({ length: moved }, (_, i) => before(row * width + i)),
      ],
      actual: (i) => (i < moved ? elsewhere(i) : inPlace(row * width + (i < width ? i : i - width))),
    };
  },
};

/** One row of vectors, all heads, rotated by the row's position. */
export function ropeRow(shape: Shape, variant: string, ropeBase: number, input: Input, row: number): number[] {
  const [heads, headDim] = [dim(shape, 'heads'), dim(shape, 'headDim')];
  const half = headDim / 2;
  const theta = rotaryFrequencies(ropeBase, headDim);
  const position = input('positions')(row);
  const data = input('data');
  const out = new Array<number>(heads * headDim);
  for (let head = 0; head < heads; head++) {
    for (let m = 0; m < half; m++) {
      const [a, b] = variant === 'adjacent' ? [2 * m, 2 * m + 1] : [m, m + half];
      const at = head * headDim;
      const angle = position * (theta[m] as number);
      const [x, y] = [data((row * heads + head) * headDim + a), data((row * heads + head) * headDim + b)];
      out[at + a] = x * Math.cos(angle) - y * Math.sin(angle);
      out[at + b] = x * Math.sin(angle) + y * Math.cos(angle);
    }
  }
  return out;
}
