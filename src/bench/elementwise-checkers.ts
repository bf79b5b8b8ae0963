/** Checkers of the element-wise kernels, whose rows may lie anywhere in their buffers. */
import { DEFAULTS } from '../kernels/launch.js';
import type { Placement } from '../kernels/shared/rows.launch.js';
import { evenRow, type Shape } from '../kernels/spec.js';
import { dim, type Checker, type Subject } from './checker.js';
import type { Scalars } from './inputs.js';
import { embedRow, ropeRow, rmsnormRow, swigluRow } from './reference/pointwise.js';

/** Rows of `width` scalars as if they lay side by side. */
const packed = (data: Scalars, width: number, at: Placement | undefined): Scalars =>
  at ? (i) => data(at.offset + Math.floor(i / width) * at.stride + (i % width)) : data;

/** A checker of one row of output for each of the shape's rows; `inputs` and `output` lie as the options say. */
const rowsIn = (
  output: string,
  inputs: Readonly<Record<string, (shape: Shape) => number>>,
  expected: (s: Subject, input: (name: string) => Scalars, row: number) => number[],
): Checker => ({
  outputs: [output],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => {
    const width = dim(s.call.shape, 'width');
    const { input, output: placed } = s.options.placement ?? {};
    const read = (name: string): Scalars => {
      const own = inputs[name];
      return own
        ? packed(s.input(name), own(s.call.shape), input)
        : name === output
          ? packed(s.input(name), width, placed)
          : s.input(name);
    };
    const actual = packed(s.output(output), width, placed);
    return { expected: expected(s, read, row), actual: (i) => actual(row * width + i) };
  },
});
const widthOf = (shape: Shape): number => dim(shape, 'width');

/** All heads of a row, those that go elsewhere read from there; and a row's other floats, which must stay. */
const rope: Checker = {
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
      // What goes elsewhere must still lie untouched where it was read.
      expected: [
        ...ropeRow(shape, variant, s.options.ropeBase ?? DEFAULTS.ropeBase, input, row),
        ...Array.from({ length: moved }, (_, i) => before(row * width + i)),
      ],
      actual: (i) => (i < moved ? elsewhere(i) : inPlace(row * width + (i < width ? i : i - width))),
    };
  },
};

/** All heads of a token, each at the position of its evicting row. */
const rope_kept: Checker = {
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

export const ELEMENTWISE_CHECKERS = {
  rmsnorm: rowsIn('target', { input: widthOf }, (s, input, row) =>
    rmsnormRow(s.call.shape, s.call.variant, s.options.eps ?? DEFAULTS.eps, input, row),
  ),
  rope,
  rope_kept,
  swiglu: rowsIn('output', { input: (shape) => 2 * dim(shape, 'width') }, (s, input, row) =>
    swigluRow(s.call.shape, input, row),
  ),
  embed: rowsIn('output', {}, (s, input, row) => {
    if (!s.options.embeddingColumns) return embedRow(s.call.shape, input, row);
    const width = dim(s.call.shape, 'width');
    const stride = evenRow(s.options.vocabulary ?? DEFAULTS.vocabulary);
    return embedRow(
      s.call.shape,
      (name) =>
        name === 'embedding' ? (i) => s.input(name)((i % width) * stride + Math.floor(i / width)) : input(name),
      row,
    );
  }),
} as const satisfies Record<string, Checker>;
