/**
 * Symmetric mid-rise quantisation of a cached row in float64: the specification of the values that `append` stores.
 *
 *   s = f16(2 max|x| / (2^n − 1)),   q = clamp(round(x/s + (2^n − 1)/2), 0, 2^n − 1),   value = s (q − (2^n − 1)/2)
 *
 * One scale a token and group. It is rounded to f16 before the codes are computed, so that they fit the scale that is
 * stored.
 */
import { nearestEven } from './small-floats.js';

/** Rounds to IEEE half precision; given from outside, as this room knows no storage formats. */
export type RoundToHalf = (value: number) => number;

/** The stored scale of a group. */
export function quantisationScale(values: readonly number[], bits: number, roundToHalf: RoundToHalf): number {
  const peak = values.reduce((most, x) => (Number.isNaN(x) ? NaN : Math.max(most, Math.abs(x))), 0);
  return roundToHalf((2 * peak) / (2 ** bits - 1));
}

/** Where x lies between the codes, before rounding. A scale of 0 stands for a group of zeros: its code is 0. */
export const codePosition = (x: number, scale: number, bits: number): number =>
  scale === 0 ? 0 : x / scale + (2 ** bits - 1) / 2;

/** Nearest code; a tie goes to the even one, as WGSL's `round` has it. */
export function quantise(x: number, scale: number, bits: number): number {
  return Math.min(2 ** bits - 1, Math.max(0, nearestEven(codePosition(x, scale, bits))));
}
