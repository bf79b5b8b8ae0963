/** Statistics of measurements. Quantiles interpolate linearly between neighbours (type 7 of Hyndman and Fan 1996). */
import { median as middle, quantile as quantileOf } from 'd3-array';

/** The median, NaN of none. */
export const median = (values: Iterable<number>): number => middle(values) ?? NaN;

/** The value below which this share of the others lie, NaN of none. */
export const quantile = (values: Iterable<number>, share: number): number => quantileOf(values, share) ?? NaN;
