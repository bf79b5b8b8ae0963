/**
 * FlashLoop's cache as bytes, little endian. Of each layer:
 *
 *   index       of each loop after the dense ones: for each packed token the number of its row, or -1; then the token
 *               of each row. int32
 *   each head   keys, then values: of each loop the codes row by row, channel after channel, low bits first, and a
 *               pair (scale, lowest value) in f16 for each group, channel by channel for keys, row by row for values;
 *               then the exact tail of each loop, row by row, in f16
 *
 * `flashloopBytes` counts them.
 */
import { bitsOfLoop, ENTRY_BYTES, placesOf, type FlashloopStream, type Grouping } from '../../codecs/flashloop.js';
import { packedOf, type PackedRows } from '../../codecs/flashloop-rows.js';
import type { FlashloopConstants } from '../../codecs/codec.js';
import { halfBits } from '../../../kernels/host/half.js';

/** One of keys and one of values. */
export interface Both<T> {
  readonly keys: T;
  readonly values: T;
}

/** @param layers heads of each */
export function flashloopCacheBytes(
  layers: readonly (readonly Both<PackedRows>[])[],
  of: FlashloopConstants,
): Uint8Array {
  return new Uint8Array(
    Buffer.concat(
      layers.flatMap((heads) => [
        ...indexOf(heads[0]!.keys, of.dense),
        ...heads.flatMap(({ keys, values }) => [...rowsOf(keys, of), ...rowsOf(values, of)]),
      ]),
    ),
  );
}

/** All heads of all layers have rows of the same tokens. */
function indexOf(rows: PackedRows, dense: number): Uint8Array[] {
  const packed = packedOf(rows);
  return rows.selected.slice(dense).map((tokens) => {
    const own = tokens.filter((token) => token < packed);
    const entries = new DataView(new ArrayBuffer(ENTRY_BYTES * (packed + own.length)));
    const put = (i: number, entry: number): void => entries.setInt32(ENTRY_BYTES * i, entry, true);
    for (let token = 0; token < packed; token++) put(token, -1);
    own.forEach((token, row) => {
      put(token, row);
      put(packed + row, token);
    });
    return new Uint8Array(entries.buffer);
  });
}

const rowsOf = (rows: PackedRows, of: FlashloopConstants): Uint8Array[] => [
  ...rows.streams.flatMap((stream, loop) => streamOf(stream, rows.by, bitsOfLoop(loop, of), of.group)),
  halvesOf(rows.tail.flat(2)),
];

function streamOf({ groups, rows }: FlashloopStream, by: Grouping, bits: number, size: number): Uint8Array[] {
  const width = rows[0]?.length ?? 0;
  const codes = new Uint8Array((rows.length * width * bits) / 8);
  let group = 0;
  for (const places of placesOf(rows.length, width, by, size)) {
    const own = groups[group++]!.codes;
    places.forEach(([row, column], i) => {
      const bit = (row * width + column) * bits;
      codes[bit >> 3]! |= own[i]! << (bit & 7);
    });
  }
  return [codes, halvesOf(groups.flatMap(({ scale, low }) => [scale, low]))];
}

function halvesOf(values: readonly number[]): Uint8Array {
  const view = new DataView(new ArrayBuffer(2 * values.length));
  values.forEach((x, i) => view.setUint16(2 * i, halfBits(x), true));
  return new Uint8Array(view.buffer);
}
