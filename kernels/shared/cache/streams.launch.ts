/**
 * Rows of flashloop (src/codecs/flashloop.ts): the codes of every loop, the first in 2, 4 or 8 bits, later ones, which
 * are differences, in 4. Tokens are packed by groups; a group's words, loop after loop:
 *
 *   codes  [token][word], channels from the low bits up
 *   pairs  f16 scale in the low half, f16 lowest value in the high one: of keys [channel], for all tokens of the group;
 *          of values [token][group of channels]
 */
import { requireShape } from '../../host/errors.js';
import type { Uniforms } from '../../host/plan.js';
import { dimensions } from '../../host/shape.js';
import type { KernelCall } from '../../registry.js';

const DIFFERENCE_BITS = 4;

export interface StreamsRow {
  readonly headDim: number;
  /** Loops of a group of tokens. */
  readonly loops: number;
  /** Tokens of a group, and channels of values that share a pair. */
  readonly group: number;
  readonly anchorBits: number;
}

/** What a call says of such a row, beside the loops that its groups have. @throws GpuError for what fills no words */
export function streamsRowOf(call: KernelCall, loops: number): StreamsRow {
  const { headDim, packGroup: group, anchorBits } = dimensions(call, 'headDim', 'packGroup', 'anchorBits');
  requireShape(
    headDim % (anchorBits === 2 ? 16 : 8) === 0 && group % 8 === 0 && headDim % Math.min(group, headDim) === 0,
    `${call.kernel}: groups of ${group} with a first loop in ${anchorBits} bits do not go with ${headDim} channels`,
  );
  return { headDim, loops, group, anchorBits };
}

/** Where the parts of a group of tokens lie, in words. */
export interface StreamsGroup {
  /** Of all loops. */
  readonly words: number;
  /** Of a loop's pairs. */
  readonly pairWords: number;
  /** Of each loop: its first word, and bits of its codes. */
  readonly at: readonly number[];
  readonly bits: readonly number[];
  /** Channels of a pair of values. */
  readonly channels: number;
}

export function streamsGroup({ headDim, loops, group, anchorBits }: StreamsRow, axis: 'keys' | 'values'): StreamsGroup {
  const channels = Math.min(group, headDim);
  const pairWords = axis === 'keys' ? headDim : group * (headDim / channels);
  const bits = Array.from({ length: loops }, (_, loop) => (loop === 0 ? anchorBits : DIFFERENCE_BITS));
  const at: number[] = [];
  let words = 0;
  for (const own of bits) {
    at.push(words);
    words += (group * headDim * own) / 32 + pairWords;
  }
  return { words, pairWords, at, bits, channels };
}

/** Words of a row: whole groups of its tokens. @param capacity tokens */
export const streamsRowWords = (row: StreamsRow, axis: 'keys' | 'values', capacity: number): number =>
  Math.floor(capacity / row.group) * streamsGroup(row, axis).words;

/** The struct `Streams` of streams.wgsl. */
export const streamsUniforms = (row: StreamsRow, axis: 'keys' | 'values', capacity: number): Uniforms => {
  const { words, pairWords } = streamsGroup(row, axis);
  return {
    width: row.headDim,
    values: axis === 'values' ? 1 : 0,
    group_words: words,
    row_words: streamsRowWords(row, axis, capacity),
    pair_words: pairWords,
    // Structs of a uniform block are whole multiples of 16 bytes.
    spare: 0,
    spare1: 0,
    spare2: 0,
  };
};
