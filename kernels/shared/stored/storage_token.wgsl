// Tokens of rows that have no scales. `row`: sequence * heads + head; `tiles`: of a row. Tokens of whole quads alone
// follow one another through all tiles.
fn token_at(shape: CachedRow, row: u32, tiles: u32, slot: u32) -> Token {
  if (EDGES == 0u) { return Token(row * tiles * shape.tile_words, slot); }
  return token_in_tile(shape, row, tiles, slot);
}
