/** Rows of residual-quant as they lie in a cache (kernels/shared/cache/residual.layout.ts), read in float64. */
import { TILE_TOKENS } from '../../kernels/spec.js';
import { anchorOf, rebuiltRow, type CodedGroup } from '../codecs/residual.js';
import { bf16Value, fp8Value } from '../codecs/small-floats.js';
import {
  anchorGroupOf,
  RESIDUAL_BITS,
  residualTile,
  type ResidualRow,
} from '../../kernels/shared/cache/residual.layout.js';
import { type Words } from '../../kernels/host/cache-layout.js';

/** What is stored of a token in a row. */
export interface StoredLoops {
  readonly anchor: readonly CodedGroup[];
  readonly residuals: readonly { readonly coefficient: number; readonly groups: readonly CodedGroup[] }[];
}

/**
 * Reads what is stored.
 * @param words reads word `index` of the buffer
 * @returns of a row (sequence × heads + head) and token
 */
export function storedLoops(
  words: Words,
  row: ResidualRow,
  capacity: number,
): (of: number, token: number) => StoredLoops {
  const tile = residualTile(row);
  return (of, token) => {
    const at = (of * (capacity / TILE_TOKENS) + Math.floor(token / TILE_TOKENS)) * tile.words;
    const t = token % TILE_TOKENS;
    const field = (from: number): number => (words(at + from + (t >> 1)) >>> (16 * (t & 1))) & 0xffff;
    const groups = (codesAt: number, each: number, pairsAt: number, size: number, bits: number): CodedGroup[] =>
      Array.from({ length: row.headDim / size }, (_, g) => {
        const pair = field(pairsAt + (g * TILE_TOKENS) / 2);
        const scale = pair >> 8 === 0x7f ? NaN : fp8Value(pair >> 8);
        const code = (i: number): number =>
          (words(at + codesAt + t * each + Math.floor((i * bits) / 32)) >>> ((i * bits) % 32)) & (2 ** bits - 1);
        return {
          scale,
          offset: fp8Value(pair & 0xff),
          codes: Array.from({ length: size }, (_, i) => code(g * size + i)),
        };
      });
    return {
      anchor: groups(0, tile.anchorWords, tile.anchorPairsAt, anchorGroupOf(row), row.anchorBits),
      residuals: tile.residuals.map(({ codesAt, pairsAt, coefficientAt }) => ({
        coefficient: bf16Value(field(coefficientAt)),
        groups: groups(codesAt, tile.residualWords, pairsAt, row.residualGroup, RESIDUAL_BITS),
      })),
    };
  };
}

/** The rows of all loops as they are read, end to end. */
export function rebuiltLoops({ anchor, residuals }: StoredLoops): number[] {
  const read = anchorOf(anchor);
  return [...residuals.flatMap(({ coefficient, groups }) => rebuiltRow(read, coefficient, groups)), ...read];
}

/** `cacheRow` of such rows: component `i` of a token, loop after loop. */
export function loopsRow(
  words: Words,
  row: ResidualRow,
  capacity: number,
): (of: number, token: number, i: number) => number {
  const read = storedLoops(words, row, capacity);
  const known = new Map<number, readonly number[]>();
  return (of, token, i) => {
    const key = of * capacity + token;
    const rows = known.get(key) ?? rebuiltLoops(read(of, token));
    known.set(key, rows);
    return rows[i] as number;
  };
}
