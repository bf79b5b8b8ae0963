/**
 * FlashLoop (arXiv 2609.29812; code Superone77/FlashLoop, MIT) in float64: bytes, the rows and keys that it selects,
 * and the coding of rows. Loop 1 is stored in 4 bits, each later loop as its 4-bit difference to what is rebuilt of the
 * loop before; loops 3 and 4 of a prompt run on a share of its tokens. flashloop-codec.ts is what the planner has of
 * it.
 */
import type { Geometry } from '../geometry/geometry.js';
import { sum } from '../numbers/statistics.js';
import type { FlashloopConstants, Streams } from './codec.js';
import { nearestEven, toF16 } from './small-floats.js';

/** Published constants. */
export const FLASHLOOP: FlashloopConstants = {
  anchorBits: 4,
  group: 64,
  tail: 64,
  dense: 2,
  rows: [1, 1, 0.25, 0.1],
  keys: 0.1,
};

/** Bits of a code of a difference. */
const DIFFERENCE_BITS = 4;
/** Bytes of a pair, scale and lowest value, in f16; of an entry of the index, an int32. */
export const PAIR_BYTES = 4;
export const ENTRY_BYTES = 4;

/** Bits of a code of a loop. @param loop from 0 */
export const bitsOfLoop = (loop: number, { anchorBits }: Pick<FlashloopConstants, 'anchorBits'>): number =>
  loop === 0 ? anchorBits : DIFFERENCE_BITS;

type Constants = Pick<FlashloopConstants, 'group' | 'tail'>;

/** Prompt tokens that are packed; the rest stays exact in the tail. */
export const packedTokens = (promptTokens: number, { group, tail }: Constants = FLASHLOOP): number =>
  Math.max(0, Math.floor((promptTokens - tail) / group) * group);

/** The same after `generated` tokens: when the tail has grown to tail + group, its oldest group is packed. */
export function packedAfter(promptTokens: number, generated: number, of: Constants = FLASHLOOP): number {
  const packed = packedTokens(promptTokens, of);
  const tail = promptTokens - packed + generated;
  return packed + Math.max(0, Math.floor((tail - of.tail) / of.group)) * of.group;
}

/** What is stored of a sequence. */
export interface FlashloopTokens {
  readonly packed: number;
  /** Packed tokens that have loop 3, and loop 4, where the model has these. */
  readonly third: number;
  readonly fourth: number;
  readonly tail: number;
}

/** Bytes of one loop's packed keys of a head: a pair of each channel serves a group of rows, the last perhaps fewer. */
export const keyStreamBytes = (rows: number, headDim: number, bits: number, group: number): number =>
  (rows * headDim * bits) / 8 + PAIR_BYTES * headDim * Math.ceil(rows / group);
/** Of its values: a pair serves a group of a row's channels. */
export const valueStreamBytes = (rows: number, headDim: number, bits: number, group: number): number =>
  rows * ((headDim * bits) / 8 + PAIR_BYTES * Math.ceil(headDim / group));

/**
 * Bytes of a sequence, as they are packed: streams; their index, for each loop after the dense ones an entry a packed
 * token and one a row; and the exact tail in 16 bits.
 */
export function flashloopBytes(
  { layers, loops, kvHeads, headDim }: Pick<Geometry, 'layers' | 'loops' | 'kvHeads' | 'headDim'>,
  { packed, third, fourth, tail }: FlashloopTokens,
  of: FlashloopConstants = FLASHLOOP,
): { readonly streams: number; readonly index: number; readonly tail: number } {
  const rows = [packed, packed, third, fourth].slice(0, loops);
  const streams = rows.map(
    (n, loop) =>
      keyStreamBytes(n, headDim, bitsOfLoop(loop, of), of.group) +
      valueStreamBytes(n, headDim, bitsOfLoop(loop, of), of.group),
  );
  const entries = rows.slice(of.dense).map((n) => packed + n);
  return {
    streams: layers * kvHeads * sum(streams),
    index: layers * ENTRY_BYTES * sum(entries),
    tail: tail * 2 * layers * loops * kvHeads * headDim * 2,
  };
}

/** The `count` largest, ascending by number; of equal ones the first. */
function largest(scores: readonly number[], count: number): number[] {
  const order = scores.map((_, i) => i).sort((a, b) => (scores[b] as number) - (scores[a] as number) || a - b);
  return order.slice(0, count).sort((a, b) => a - b);
}

/** True where loops after the dense ones read chosen keys. */
export const choosesKeys = ({ stored, dense }: Pick<Streams, 'stored' | 'dense'>): boolean => stored.length > dense;

/** Keys that they read of so many cached tokens and the current one. */
export const chosenKeys = ({ keys }: Pick<Streams, 'keys'>, context: number): number => Math.ceil(keys * (context + 1));

const LEAST_NORM = 1e-12;

/** ‖h_t − h_{t−1}‖ / ‖h_t‖ of states after the loops' norm. */
export const rowScore = (state: readonly number[], before: readonly number[]): number =>
  Math.hypot(...state.map((x, i) => x - (before[i] as number))) / Math.max(LEAST_NORM, Math.hypot(...state));

/**
 * Prompt tokens that run in a loop: the best share of all by score, the last one, whose logits are needed, among them.
 * @param among those of the loop before; all unless given
 */
export function selectedRows(scores: readonly number[], share: number, among?: readonly number[]): number[] {
  const allowed = among ? new Set(among) : undefined;
  const last = scores.length - 1;
  const ranked = scores.map((score, i) => (i === last ? Infinity : allowed && !allowed.has(i) ? -Infinity : score));
  return largest(ranked, Math.min(Math.ceil(share * scores.length), allowed ? allowed.add(last).size : Infinity));
}

/** Keys that loops 3 and 4 read, of one head: the most probable ones of loop 2. */
export interface SelectedKeys {
  readonly keys: readonly number[];
  /** Their probability in loop 2, and the mean of their values by it. */
  readonly mass: number;
  readonly mean: readonly number[];
}

/** @param probabilities of loop 2, cached tokens first, the current one last */
export function selectedKeys(
  probabilities: readonly number[],
  values: readonly (readonly number[])[],
  share: number = FLASHLOOP.keys,
): SelectedKeys {
  const keys = largest(probabilities, Math.ceil(share * probabilities.length));
  const mass = sum(keys.map((i) => probabilities[i] as number));
  return {
    keys,
    mass,
    mean: mixed(
      keys.map((i) => (probabilities[i] as number) / mass),
      keys.map((i) => values[i]!),
    ),
  };
}

/** Σ w x of rows. */
export const mixed = (weights: readonly number[], rows: readonly (readonly number[])[]): number[] =>
  rows[0]!.map((_, c) => rows.reduce((total, row, i) => total + weights[i]! * row[c]!, 0));

/**
 * Attention of loop 3 or 4: o_2 + m (softmax over the selected keys · values − s).
 * @param scores of this loop's selected keys, scaled @param values theirs, in this loop
 */
export function sparseAttention(
  second: readonly number[],
  { mass, mean }: SelectedKeys,
  scores: readonly number[],
  values: readonly (readonly number[])[],
): number[] {
  const top = Math.max(...scores);
  const weights = scores.map((s) => Math.exp(s - top));
  const total = sum(weights);
  const own = mixed(
    weights.map((w) => w / total),
    values,
  );
  return second.map((o, c) => o + mass * ((own[c] as number) - (mean[c] as number)));
}

/** Rounds to the type of the cache. */
export type RoundTo = (x: number) => number;

/** Codes of the values of one group, with the pair as it is stored. */
export interface FlashloopGroup {
  readonly scale: number;
  readonly low: number;
  readonly codes: readonly number[];
}

/**
 * Codes a group in f32: codes by the unrounded pair, the pair then rounded.
 * @param toHalf rounds to f16, in which the pair is stored
 */
export function codeFlashloop(values: readonly number[], toHalf: RoundTo = toF16, bits = 4): FlashloopGroup {
  const most = 2 ** bits - 1;
  const low = Math.fround(Math.min(...values));
  const range = Math.fround(Math.max(...values) - low);
  const scale = Math.fround(range / most) || 1;
  const codes = values.map((x) => Math.min(most, Math.max(0, nearestEven(Math.fround(Math.fround(x - low) / scale)))));
  return { scale: toHalf(scale), low: toHalf(low), codes };
}

/** The values of a group: a product and a sum in f32, rounded to the type of the cache. */
export const flashloopValues = ({ scale, low, codes }: FlashloopGroup, to: RoundTo): number[] =>
  codes.map((code) => to(Math.fround(Math.fround(code * scale) + low)));

/** How a stream groups its scalars: keys by `size` rows of a channel, values by `size` channels of a row. */
export type Grouping = 'keys' | 'values';

/** How rows are coded. */
export interface Coding {
  /** Rows of a channel, or channels of a row, that share a pair. */
  readonly size: number;
  /** Type of the cache. */
  readonly to: RoundTo;
  /** Type of the pair: f16 unless given. */
  readonly toHalf?: RoundTo;
  /** Bits of a code: 4 unless given; in loops, of the first one's. */
  readonly bits?: number;
}

/** A stream: its groups, channel by channel or row by row, and the rows that they stand for. */
export interface FlashloopStream {
  readonly groups: readonly FlashloopGroup[];
  readonly rows: readonly (readonly number[])[];
}

/** Codes rows, those of neighbouring tokens together, the last groups perhaps shorter. */
export function codeStream(
  rows: readonly (readonly number[])[],
  by: Grouping,
  { size, to, toHalf, bits }: Coding,
): FlashloopStream {
  const width = rows[0]?.length ?? 0;
  const read = rows.map((row) => [...row]);
  const groups: FlashloopGroup[] = [];
  for (const places of placesOf(rows.length, width, by, size)) {
    const group = codeFlashloop(
      places.map(([row, column]) => rows[row]![column]!),
      toHalf,
      bits,
    );
    flashloopValues(group, to).forEach((x, i) => {
      const [row, column] = places[i] as [number, number];
      read[row]![column] = x;
    });
    groups.push(group);
  }
  return { groups, rows: read };
}

/** Row and column of the scalars of each group. */
export function* placesOf(rows: number, width: number, by: Grouping, size: number): Generator<[number, number][]> {
  const [outer, inner] = by === 'keys' ? [width, rows] : [rows, width];
  for (let o = 0; o < outer; o++)
    for (let from = 0; from < inner; from += size)
      yield Array.from({ length: Math.min(size, inner - from) }, (_, i): [number, number] =>
        by === 'keys' ? [from + i, o] : [o, from + i],
      );
}

/** What a loop's rows differ by from those that are rebuilt of the loop before. */
const difference = (row: readonly number[], before: readonly number[], to: RoundTo): number[] =>
  row.map((x, c) => to(Math.fround(x - before[c]!)));

/**
 * The rows of every loop, from what the streams stand for: sums are rounded to the type of the cache; a token without a
 * row of a loop keeps what the loop before has.
 * @param streams rows of each loop's tokens @param selected those tokens, ascending; of the first loop all
 */
export function rebuiltLoops(
  streams: readonly (readonly (readonly number[])[])[],
  selected: readonly (readonly number[])[],
  to: RoundTo,
): (readonly (readonly number[])[])[] {
  const rebuilt: (readonly number[])[][] = [];
  streams.forEach((rows, t) => {
    const before = rebuilt[t - 1];
    const next = before ? [...before] : [...rows];
    if (before)
      selected[t]!.forEach((token, i) => {
        next[token] = rows[i]!.map((x, c) => to(Math.fround(before[token]![c]! + x)));
      });
    rebuilt.push(next);
  });
  return rebuilt;
}

/**
 * Codes packed rows of all loops, and rebuilds them. Differences are rounded to the type of the cache.
 * @param loops rows by loop and token; of a loop that a token did not run they are not read
 * @param selected tokens of each loop, ascending; of the first loop all
 */
export function codeLoopDifferences(
  loops: readonly (readonly (readonly number[])[])[],
  selected: readonly (readonly number[])[],
  by: Grouping,
  { bits, ...how }: Coding,
): { readonly streams: readonly FlashloopStream[]; readonly rebuilt: readonly (readonly (readonly number[])[])[] } {
  const streams: FlashloopStream[] = [];
  let rebuilt: readonly (readonly (readonly number[])[])[] = [];
  loops.forEach((rows, t) => {
    const before = rebuilt[t - 1];
    const own = selected[t]!.map((token) => (before ? difference(rows[token]!, before[token]!, how.to) : rows[token]!));
    streams.push(codeStream(own, by, before || bits === undefined ? how : { ...how, bits }));
    rebuilt = rebuiltLoops(
      streams.map((stream) => stream.rows),
      selected,
      how.to,
    );
  });
  return { streams, rebuilt };
}
