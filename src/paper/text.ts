/** How values of the comparison are written. */
import type { Interval } from '../cost/evidence.js';
import { formatBytes, formatCount, formatMilliseconds, formatNumber, formatTokens } from '../numbers/units.js';
import type { Unit } from './types.js';

/** Two decimals at most, no trailing zeros: `4×`, `10.67×`, `16.5×`. */
export const ratioText = (ratio: number): string => `${Number(ratio.toFixed(ratio >= 100 ? 0 : 2))}×`;

/** `8.07 (3.84–22.2) ms` */
export const timeText = (s: Interval): string =>
  `${formatMilliseconds(s.estimate)} (${formatMilliseconds(s.low)}–${formatMilliseconds(s.high)}) ms`;

export const rateText = (r: Interval): string =>
  `${formatCount(r.estimate)} (${formatCount(r.low)}–${formatCount(r.high)}) tok/s`;

/** `46.4 TFLOP` */
export const flopText = (flops: number): string => `${formatCount(flops).replace(/([kMGT])$/, ' $1')}FLOP`;

export const microseconds = (seconds: number): string => `${formatNumber(seconds * 1e6)} µs`;

export const percent = (share: number): string => `${formatNumber(share * 100)} %`;

/** `42`, `302 M`, `1.61 B` */
export const countText = (n: number): string =>
  n >= 1e9 ? `${formatNumber(n / 1e9)} B` : n >= 1e6 ? `${formatNumber(n / 1e6)} M` : formatNumber(n);

/** A cell of a table; `–` for what does not exist. */
export function cellText(value: number | string | null, unit: Unit): string {
  if (value === null) return '–';
  if (typeof value === 'string') return value;
  switch (unit) {
    case 'text':
    case 'count':
      return countText(value);
    case 'ratio':
      return ratioText(value);
    case 'share':
      return percent(value);
    case 'bytes':
      return formatBytes(value);
    case 'tokens':
      return formatTokens(value);
    case 'seconds':
      return `${formatMilliseconds(value)} ms`;
    case 'tokens/s':
      return `${formatCount(value)} tok/s`;
    default:
      return unit satisfies never;
  }
}
