// Cached rows of f32: a unit is four words, four components; the last one may be short and is filled with zeros.
#include "cache_layout.wgsl"
const UNIT = 4u;
const UNIT_VECS = 1u;
alias Unit = array<vec4f, UNIT_VECS>;

// `row`: sequence * heads + head; `tiles`: of a row. Tokens of whole quads alone follow one another through all tiles.
fn token_at(shape: CachedRow, row: u32, tiles: u32, slot: u32) -> Token {
  if (EDGES == 0u) { return Token(row * tiles * shape.tile_words, slot); }
  return token_in_tile(shape, row, tiles, slot);
}

fn load_unit(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, unit: u32) -> Unit {
  let last = select(unit, min(unit, max(shape.quads, 1u) - 1u), EDGES == 1u);
  var w = (*cache)[token.tile / 4u + token.t * shape.quads + last];
  if (EDGES == 1u && unit >= shape.quads) {
    w = vec4u(0u);
    let at = token.tile + TILE_TOKENS * 4u * shape.quads + token.t;
    if (shape.rest > 0u) { w.x = word_at(cache, at); }
    if (shape.rest > 1u) { w.y = word_at(cache, at + TILE_TOKENS); }
    if (shape.rest > 2u) { w.z = word_at(cache, at + 2u * TILE_TOKENS); }
  }
  return Unit(bitcast<vec4f>(w));
}
