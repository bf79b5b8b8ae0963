/**
 * Contents of a cache after an append, in float64: the specification of append.wgsl, with the addresses of
 * host/cache-layout.ts.
 */
import { codePosition, quantisationScale, quantise } from '../../../src/codecs/quantise.js';
import {
  codeValue,
  fieldsOf,
  putComponent,
  putScale,
  scaleField,
  storedBits,
  type RowLayout,
  type Words,
} from '../../host/cache-layout.js';
import { halfBits, halfValue } from '../../host/half.js';
import { isQuantised } from '../../spec.js';

const roundToHalf = (x: number): number => halfValue(halfBits(x));

/** Slots of a row: `pinned` ones, then a ring. Positions below `sinks` are stored in the slot of their number. */
interface Segments {
  readonly pinned: number;
  readonly ring: number;
  readonly sinks: number;
}

/** Slot of a position. */
export const slotOf = (position: number, { pinned, ring, sinks }: Segments): number =>
  position < sinks ? position : pinned + (position % ring);

/** How near a value may come to a rounding boundary in f32 arithmetic before another neighbour is right as well. */
const CLOSE = 1e-4;

const CLOSE_SCALE = 1e-6;

/** The other value that a stored scale or code may have, because f32 arithmetic rounds near a boundary. */
interface Stored {
  readonly scales: readonly number[];
  /** Per component: the nearest code under the scale, and the other one if the value lies on a boundary. */
  codes(scale: number): readonly (readonly number[])[];
}

/** The scales and codes that are right for one group of a token; the first of each is the exact one. */
export function storedGroup(values: readonly number[], bits: number): Stored {
  const exact = quantisationScale(values, bits, (x) => x);
  const scales = [...new Set([exact, exact * (1 - CLOSE_SCALE), exact * (1 + CLOSE_SCALE)].map(roundToHalf))];
  return {
    scales,
    codes: (scale) =>
      values.map((x) => {
        const at = codePosition(x, scale, bits);
        const clamp = (q: number): number => Math.min(2 ** bits - 1, Math.max(0, q));
        return [...new Set([quantise(x, scale, bits), clamp(Math.round(at - CLOSE)), clamp(Math.round(at + CLOSE))])];
      }),
  };
}

/** Writes one token's row as it should be stored. */
export function putRow(
  words: Uint32Array,
  layout: RowLayout,
  capacity: number,
  row: number,
  slot: number,
  values: readonly number[],
): void {
  const { width, groupSize, bits, storage } = layout;
  if (!isQuantised(storage)) {
    values.forEach((x, i) => {
      putComponent(words, layout, capacity, row, slot, i, x);
    });
    return;
  }
  for (let from = 0; from < width; from += groupSize) {
    const group = values.slice(from, from + groupSize);
    const scale = quantisationScale(group, bits, roundToHalf);
    putScale(words, layout, capacity, row, slot, from / groupSize, scale);
    group.forEach((x, i) => {
      putComponent(words, layout, capacity, row, slot, from + i, quantise(x, scale, bits));
    });
  }
}

/**
 * A token's row as read back from the cache. Where f32 arithmetic may round either way, the value in `words` counts as
 * right.
 * @param words the cache after the append
 */
export function storedRow(
  words: Words,
  layout: RowLayout,
  capacity: number,
  row: number,
  slot: number,
  values: readonly number[],
): number[] {
  const { width, groupSize, bits, storage } = layout;
  if (!isQuantised(storage)) return values.map(storage === 'f16' ? roundToHalf : Math.fround);
  const out: number[] = [];
  for (let from = 0; from < width; from += groupSize) {
    const right = storedGroup(values.slice(from, from + groupSize), bits);
    const found = halfValue(storedBits(words, [scaleField(layout, capacity, row, slot, from / groupSize)]));
    const scale = right.scales.includes(found) ? found : (right.scales[0] as number);
    right.codes(scale).forEach((codes, i) => {
      const code = storedBits(words, fieldsOf(layout, capacity, row, slot, from + i));
      out.push(codeValue(codes.includes(code) ? code : (codes[0] as number), scale, bits));
    });
  }
  return out;
}
