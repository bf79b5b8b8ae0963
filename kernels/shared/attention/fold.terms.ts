/** How threads share cached rows unless tuned (attend_rows.wgsl): launches lay out by it, terms count by it. */
import { STORAGE_BITS, type Storage } from '../../spec.js';

/** Widths of a cached row, and the query heads that read it. */
interface Rows {
  readonly keyWidth: number;
  readonly valueWidth: number;
  readonly group: number;
}

/** Components of a unit as storage_*.wgsl reads it: 16 bytes, of three-bit codes 12. */
export const readUnit = ({ storage }: { readonly storage: Storage }): number =>
  storage === 'q3' ? 32 : 128 / STORAGE_BITS[storage];

/** A row as stored, of `width` components. */
interface StoredRow {
  readonly storage: Storage;
  readonly width: number;
}

/** Units of a row. */
export const unitsOf = (row: StoredRow): number => Math.ceil(row.width / readUnit(row));

/** Units of a row that one of `wide` threads takes. */
export const unitsEach = (row: StoredRow, wide: number): number => Math.ceil(unitsOf(row) / wide);

/** Threads that share a row of `units` units so that each takes at most `most`: a power of two. */
export function threadsOfRow(units: number, most: number): number {
  let wide = 1;
  while (wide * most < units) wide *= 2;
  return wide;
}

export const DEFAULT_WORKGROUP = 64;

/** Threads that share a row: no more than the smallest subgroup, across which they add up. */
export const MOST_WIDE = 8;

/** Vec4 registers that a thread may spend on its sums. */
const SUMS = 12;

function wanted(storage: Storage, { keyWidth, valueWidth }: Rows, lanes: number): number {
  const units = unitsOf({ storage, width: Math.max(keyWidth, valueWidth) });
  return threadsOfRow(units, Math.max(1, Math.floor((4 * SUMS) / (lanes * readUnit({ storage })))));
}

/** Query heads of a workgroup: a power of two, at most 4. */
export function lanesOf(storage: Storage, rows: Rows): number {
  let lanes = 2 ** Math.ceil(Math.log2(Math.min(rows.group, 4)));
  while (lanes > 1 && (wanted(storage, rows, lanes) > MOST_WIDE || lanes * readUnit({ storage }) > 4 * SUMS))
    lanes /= 2;
  return lanes;
}

/** Threads that share a row of so many query heads. */
export const wideOf = (storage: Storage, rows: Rows, lanes: number): number =>
  Math.min(MOST_WIDE, wanted(storage, rows, lanes));
