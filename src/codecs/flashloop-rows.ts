/**
 * FlashLoop's cache of one head's keys, or values, in a layer: streams of packed tokens, exact rows of the last ones;
 * what is read of it, and how it grows. Rows are [channel]; everything is rounded to the type of the cache.
 */
import type { FlashloopConstants } from './codec.js';
import {
  codeLoopDifferences,
  codeStream,
  FLASHLOOP,
  packedTokens,
  rebuiltLoops,
  type Coding,
  type FlashloopStream,
  type Grouping,
  type RoundTo,
} from './flashloop.js';

type Row = readonly number[];

/** Keys or values of one head in a layer. */
export interface PackedRows {
  readonly by: Grouping;
  /** One a loop; the first has a row of every packed token. */
  readonly streams: readonly FlashloopStream[];
  /** Of each loop, the tokens that have a row of it, packed or not, ascending. */
  readonly selected: readonly (readonly number[])[];
  /** Exact rows, [loop][token]. A token without a row of a loop has there what the loop before has. */
  readonly tail: readonly (readonly Row[])[];
}

/** Numbers of the codec, and the types of the cache and of a pair. */
export interface Packing extends Partial<Pick<FlashloopConstants, 'group' | 'tail' | 'anchorBits'>> {
  readonly to: RoundTo;
  readonly toHalf?: RoundTo;
}

function codingOf({ group = FLASHLOOP.group, anchorBits = FLASHLOOP.anchorBits, to, toHalf }: Packing): Coding {
  return { size: group, bits: anchorBits, to, ...(toHalf ? { toHalf } : {}) };
}

/** Tokens that are packed. */
export const packedOf = ({ streams }: Pick<PackedRows, 'streams'>): number => streams[0]!.rows.length;

/**
 * Packs a prompt's rows, all but its exact tail.
 * @param loops rows by loop and token, in the type of the cache; of a loop that a token did not run they are not read
 * @param selected tokens that ran each loop, ascending: all in the first
 */
export function packRows(
  loops: readonly (readonly Row[])[],
  selected: readonly (readonly number[])[],
  by: Grouping,
  packing: Packing,
): PackedRows {
  const { group = FLASHLOOP.group, tail = FLASHLOOP.tail } = packing;
  const packed = packedTokens(loops[0]!.length, { group, tail });
  const before = selected.map((tokens) => tokens.filter((token) => token < packed));
  const { streams } = codeLoopDifferences(loops, before, by, codingOf(packing));
  const exact: (readonly Row[])[] = [];
  loops.forEach((rows, t) => {
    const ran = new Set(selected[t]);
    exact.push(rows.slice(packed).map((row, i) => (t === 0 || ran.has(packed + i) ? row : exact[t - 1]![i]!)));
  });
  return { by, streams, selected, tail: exact };
}

/**
 * Appends a generated token. When the tail has grown by a group, its oldest tokens are packed as a prompt's are, and
 * their streams joined to those there.
 * @param rows of every loop
 */
export function appendRow(cache: PackedRows, rows: readonly Row[], packing: Packing): PackedRows {
  const { group = FLASHLOOP.group, tail: kept = FLASHLOOP.tail } = packing;
  const position = packedOf(cache) + cache.tail[0]!.length;
  const grown = {
    ...cache,
    selected: cache.selected.map((tokens) => [...tokens, position]),
    tail: cache.tail.map((exact, t) => [...exact, rows[t]!]),
  };
  return position + 1 - packedOf(cache) < kept + group ? grown : packOldest(grown, packing, group);
}

function packOldest(cache: PackedRows, packing: Packing, group: number): PackedRows {
  const packed = packedOf(cache);
  const coding = codingOf(packing);
  const selected = cache.selected.map((tokens) =>
    tokens.filter((token) => token >= packed && token < packed + group).map((token) => token - packed),
  );
  const block = codeLoopDifferences(
    cache.tail.map((rows) => rows.slice(0, group)),
    selected,
    cache.by,
    coding,
  );
  const { bits: anchorBits, ...differences } = coding;
  return {
    ...cache,
    streams: cache.streams.map((stream, t) =>
      joinedStreams(stream, block.streams[t]!, cache.by, t === 0 ? { ...differences, bits: anchorBits! } : differences),
    ),
    tail: cache.tail.map((rows) => rows.slice(group)),
  };
}

/**
 * Two streams as one. Values, and keys behind whole groups, are joined as they are. Keys behind a group that is not
 * full are all decoded and coded again.
 */
export function joinedStreams(
  left: FlashloopStream,
  right: FlashloopStream,
  by: Grouping,
  coding: Coding,
): FlashloopStream {
  if (right.rows.length === 0) return left;
  if (left.rows.length === 0) return right;
  const rows = [...left.rows, ...right.rows];
  if (by === 'values') return { groups: [...left.groups, ...right.groups], rows };
  if (left.rows.length % coding.size !== 0) return codeStream(rows, by, coding);
  const width = rows[0]!.length;
  const ofChannel = ({ groups }: FlashloopStream, channel: number): FlashloopStream['groups'] => {
    const each = groups.length / width;
    return groups.slice(channel * each, (channel + 1) * each);
  };
  return {
    groups: Array.from({ length: width }, (_, channel) => [
      ...ofChannel(left, channel),
      ...ofChannel(right, channel),
    ]).flat(),
    rows,
  };
}

/** Streams do not change; steps read them again and again. */
const rebuiltOf = new WeakMap<PackedRows['streams'], readonly (readonly Row[])[]>();

/** Rows of all tokens as attention of a loop reads them. @param loop from 0 */
export function readRows(cache: PackedRows, loop: number, to: RoundTo): readonly Row[] {
  const packed = packedOf(cache);
  let rows = rebuiltOf.get(cache.streams);
  if (!rows) {
    rows = rebuiltLoops(
      cache.streams.map((stream) => stream.rows),
      cache.selected.map((tokens) => tokens.filter((token) => token < packed)),
      to,
    );
    rebuiltOf.set(cache.streams, rows);
  }
  return [...rows[loop]!, ...cache.tail[loop]!];
}
