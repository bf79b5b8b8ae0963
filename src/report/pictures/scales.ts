/**
 * Logarithmic axes whose ticks are values that people know: powers of two for tokens and bytes, 1-2-5 steps for the
 * rest.
 */
import type { Scale } from 'chart.js';
import { formatBytes, formatCount, formatNumber, formatTokens } from '../../numbers/units.js';
import { axis, type Theme } from './theme.js';

/** Most ticks on an axis before every second one is left out. */
const MOST_TICKS = 9;

/** Powers of two from `min` to `max`, thinned evenly. */
export function powersOfTwo(min: number, max: number, most = MOST_TICKS): number[] {
  const low = Math.ceil(Math.log2(min) - 1e-9);
  const high = Math.floor(Math.log2(max) + 1e-9);
  const step = Math.max(1, Math.ceil((high - low + 1) / most));
  const ticks: number[] = [];
  for (let e = Math.ceil(low / step) * step; e <= high; e += step) ticks.push(2 ** e);
  return ticks;
}

/** 1, 2, 5, 10, … from `min` to `max`; whole decades where there would be too many. */
export function decades(min: number, max: number): number[] {
  const low = Math.floor(Math.log10(min));
  const high = Math.ceil(Math.log10(max));
  const all = (steps: readonly number[], every: number): number[] => {
    const ticks: number[] = [];
    for (let e = low; e <= high; e++) if (e % every === 0) for (const s of steps) ticks.push(s * 10 ** e);
    return ticks.filter((t) => t >= min * 0.999 && t <= max * 1.001);
  };
  for (const steps of [[1, 2, 5], [1, 3], [1]]) {
    const ticks = all(steps, 1);
    if (ticks.length <= MOST_TICKS) return ticks;
  }
  return all([1], Math.ceil((high - low + 1) / MOST_TICKS));
}

interface Range {
  readonly min: number;
  readonly max: number;
}
type Ticks = (min: number, max: number) => number[];
type Label = (value: number) => string;

/** A logarithmic scale from `min` to `max`. */
export function logScale(theme: Theme, title: string, range: Range, ticks: Ticks, label: Label): object {
  const base = axis(theme, title);
  return {
    ...base,
    type: 'logarithmic',
    min: range.min,
    max: range.max,
    afterBuildTicks: (scale: Scale) => {
      scale.ticks = ticks(range.min, range.max).map((value) => ({ value }));
    },
    ticks: { ...base.ticks, autoSkip: true, callback: (value: number) => label(value) },
  };
}

const scaleOf = (ticks: Ticks, label: Label) => (theme: Theme, title: string, range: Range) =>
  logScale(theme, title, range, ticks, label);
export const tokenScale = scaleOf(powersOfTwo, formatTokens);
export const byteScale = scaleOf(powersOfTwo, formatBytes);
export const countScale = scaleOf(decades, formatCount);
export const numberScale = scaleOf(decades, formatNumber);

/** The range of positive values, widened by a share of its logarithm so that marks do not sit on the frame. */
export function spread(values: readonly number[], margin = 1.15): Range {
  const positive = values.filter((v) => v > 0 && Number.isFinite(v));
  if (positive.length === 0) return { min: 1, max: 10 };
  return { min: Math.min(...positive) / margin, max: Math.max(...positive) * margin };
}
