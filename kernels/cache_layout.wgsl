// Where a cached pair of scalars lies. `row`: sequence * kvHeads + head; `capacity`: tokens reserved for a row, whole
// tiles of 32; `pairs`: half the width. The same addresses in TypeScript: src/gpu/cache-layout.ts.
const TILE_TOKENS = 32u;

// Key side, [row][token / 32][pair][token % 32]: neighbouring threads hold neighbouring tokens and read coalesced.
// The next pair of the same token lies TILE_TOKENS further.
fn key_index(row: u32, token: u32, pair: u32, capacity: u32, pairs: u32) -> u32 {
  return ((row * (capacity / TILE_TOKENS) + token / TILE_TOKENS) * pairs + pair) * TILE_TOKENS + token % TILE_TOKENS;
}

// Value side, [row][token][pair]: neighbouring threads hold neighbouring components.
fn value_index(row: u32, token: u32, pair: u32, capacity: u32, pairs: u32) -> u32 {
  return (row * capacity + token) * pairs + pair;
}
