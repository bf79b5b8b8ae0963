/** Rows of flashloop as they are stored (streams.launch.ts), read in float64. */
import type { Words } from '../../host/cache-layout.js';
import { halfBits, halfValue } from '../../host/half.js';
import { streamsGroup, streamsRowWords, type StreamsRow } from './streams.launch.js';

export const toHalf = (x: number): number => halfValue(halfBits(x));

/** What is stored of a token's channel in a loop. */
export interface StoredCode {
  readonly code: number;
  readonly scale: number;
  readonly low: number;
}

/** @returns of a row (sequence × heads + head), loop, token and channel */
export function storedCodes(
  words: Words,
  row: StreamsRow,
  axis: 'keys' | 'values',
  capacity: number,
): (of: number, loop: number, token: number, channel: number) => StoredCode {
  const { words: groupWords, pairWords, at, bits, channels } = streamsGroup(row, axis);
  const rowWords = streamsRowWords(row, axis, capacity);
  return (of, loop, token, channel) => {
    const own = bits[loop] as number;
    const t = token % row.group;
    const first = of * rowWords + Math.floor(token / row.group) * groupWords + (at[loop] as number);
    const bit = (t * row.headDim + channel) * own;
    const end = first + (row.group * row.headDim * own) / 32;
    const pair = axis === 'keys' ? channel : t * (pairWords / row.group) + Math.floor(channel / channels);
    const both = words(end + pair);
    return {
      code: (words(first + (bit >>> 5)) >>> (bit & 31)) & (2 ** own - 1),
      scale: halfValue(both & 0xffff),
      low: halfValue(both >>> 16),
    };
  };
}

/** The sum of so many streams, rounded as the codec rounds it. */
export function rebuilt(
  read: ReturnType<typeof storedCodes>,
  loops: number,
  of: number,
  token: number,
  channel: number,
): number {
  let sum = 0;
  for (let loop = 0; loop < loops; loop++) {
    const { code, scale, low } = read(of, loop, token, channel);
    sum = toHalf(sum + toHalf(code * scale + low));
  }
  return sum;
}
