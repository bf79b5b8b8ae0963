/** Rows of element-wise kernels, which may be anywhere in their buffers. */
import type { Placement } from '../../placement.js';
import { dim, type Checker, type Subject, type Scalars } from '../../reference.js';
import type { Shape } from '../../spec.js';

/** Rows of `width` scalars as if they were contiguous. */
export const packed = (data: Scalars, width: number, at: Placement | undefined): Scalars =>
  at ? (i) => data(at.offset + Math.floor(i / width) * at.stride + (i % width)) : data;

/** A checker of one row of output for each of the shape's rows; `inputs` and `output` lie as the options say. */
export const rowsIn = (
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

export const widthOf = (shape: Shape): number => dim(shape, 'width');

export type Input = (name: string) => Scalars;
