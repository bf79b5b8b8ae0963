/**
 * Coding of one head's rows of several loops in float64 (ResidualQuant, arXiv 2610.10381, without rotation): what
 * `append_residual` stores and `attend_residual` reads.
 *
 *   R = Q_b(x_T),   a_t = <x_t, R> / |R|^2,   x̂_t = a_t R + Q_2(x_t - a_t R)
 *
 * Each of R, a_t, a_t R, the residual and x̂_t is rounded to bf16, differences and sums from f32; that order is
 * assumed. a_t is 0 where R is.
 */
import { toBf16, toFp8 } from './small-floats.js';

/** Share of a group's range that 2-bit codes span, about its centre; 4-bit codes span all. */
const KEPT_OF_2_BITS = 0.9;

/** A group of channels as it is stored: value = code · scale + offset. */
export interface CodedGroup {
  readonly scale: number;
  readonly offset: number;
  readonly codes: readonly number[];
}

/** Scale and offset before their rounding to FP8. */
export function rangeOf(values: readonly number[], bits: number): { scale: number; offset: number } {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const range = (bits === 2 ? KEPT_OF_2_BITS : 1) * (most - least);
  return { scale: range / (2 ** bits - 1), offset: bits === 2 ? (least + most) / 2 - range / 2 : least };
}

/** Where x lies between the codes. A scale of 0 stands for a group of one value: its code is 0. */
export const residualPosition = (x: number, { scale, offset }: Pick<CodedGroup, 'scale' | 'offset'>): number =>
  scale === 0 ? 0 : (x - offset) / scale;

/** Nearest code; a half rounds down. */
export const nearestCode = (position: number, bits: number): number =>
  Math.min(2 ** bits - 1, Math.max(0, Math.ceil(position - 0.5)));

export function codeGroup(values: readonly number[], bits: number): CodedGroup {
  const { scale, offset } = rangeOf(values, bits);
  const pair = { scale: toFp8(scale), offset: toFp8(offset) };
  return { ...pair, codes: values.map((x) => nearestCode(residualPosition(x, pair), bits)) };
}

/** A row in groups of `size` channels. */
export const codeRow = (values: readonly number[], bits: number, size: number): CodedGroup[] =>
  Array.from({ length: values.length / size }, (_, i) => codeGroup(values.slice(i * size, (i + 1) * size), bits));

export const valuesOf = (groups: readonly CodedGroup[]): number[] =>
  groups.flatMap(({ scale, offset, codes }) => codes.map((code) => code * scale + offset));

/** R: the anchor as every loop reads it. */
export const anchorOf = (groups: readonly CodedGroup[]): number[] => valuesOf(groups).map(toBf16);

/** a_t before its rounding. */
export function coefficientOf(row: readonly number[], anchor: readonly number[]): number {
  const dot = (a: readonly number[], b: readonly number[]): number =>
    a.reduce((sum, x, i) => sum + x * (b[i] as number), 0);
  const square = dot(anchor, anchor);
  return square === 0 ? 0 : dot(row, anchor) / square;
}

/** What is left of a row. @param coefficient rounded */
export const residualOf = (row: readonly number[], anchor: readonly number[], coefficient: number): number[] =>
  row.map((x, i) => toBf16(Math.fround(x - toBf16(coefficient * (anchor[i] as number)))));

/** x̂_t, from what is stored. */
export const rebuiltRow = (
  anchor: readonly number[],
  coefficient: number,
  residual: readonly CodedGroup[],
): number[] => {
  const rest = valuesOf(residual);
  return anchor.map((r, i) => toBf16(Math.fround(toBf16(coefficient * r) + (rest[i] as number))));
};

/** What is stored of the rows of all loops of a group, and the rows that are read. */
export interface CodedLoops {
  readonly anchor: readonly CodedGroup[];
  readonly residuals: readonly { readonly coefficient: number; readonly groups: readonly CodedGroup[] }[];
  readonly rows: readonly (readonly number[])[];
}

/**
 * Codes the rows of one token and head.
 * @param rows one a loop, the anchor's last
 */
export function codeLoops(
  rows: readonly (readonly number[])[],
  { anchorBits, anchorGroup, residualGroup }: { anchorBits: number; anchorGroup: number; residualGroup: number },
): CodedLoops {
  const anchor = codeRow(rows.at(-1) as readonly number[], anchorBits, anchorGroup);
  const read = anchorOf(anchor);
  const residuals = rows.slice(0, -1).map((row) => {
    const coefficient = toBf16(coefficientOf(row, read));
    return { coefficient, groups: codeRow(residualOf(row, read, coefficient), 2, residualGroup) };
  });
  return {
    anchor,
    residuals,
    rows: [...residuals.map(({ coefficient, groups }) => rebuiltRow(read, coefficient, groups)), read],
  };
}
