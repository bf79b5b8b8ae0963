// Cached rows of f32: a unit is four words, four components; the last one may be short and is filled with zeros.
#include "cache_layout.wgsl"
const UNIT = 4u;
const UNIT_VECS = 1u;
alias Unit = array<vec4f, UNIT_VECS>;

#include "storage_token.wgsl"

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
