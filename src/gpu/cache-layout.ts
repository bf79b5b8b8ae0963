/**
 * Where a cached pair of scalars lies, in pairs from the start of the buffer. The same addresses in WGSL:
 * kernels/cache_layout.wgsl. A pair is a u32 of two halves (f16) or two floats (f32).
 */

/** Tokens in one tile of the key side. */
export const TILE_TOKENS = 32;

/** Tokens reserved for a row: whole tiles. */
export const capacityOf = (tokens: number): number => Math.ceil(tokens / TILE_TOKENS) * TILE_TOKENS;

/** Key side, [row][token / 32][pair][token % 32]. `row`: sequence × kvHeads + head; `pairs`: half the width. */
export const keyIndex = (row: number, token: number, pair: number, capacity: number, pairs: number): number =>
  ((row * (capacity / TILE_TOKENS) + Math.floor(token / TILE_TOKENS)) * pairs + pair) * TILE_TOKENS + (token % TILE_TOKENS);

/** Value side, [row][token][pair]. */
export const valueIndex = (row: number, token: number, pair: number, capacity: number, pairs: number): number => (row * capacity + token) * pairs + pair;
