// Cached rows of f16: a unit is four words, eight components; the last one may be short and is filled with zeros.
// (unpack2x16float needs no shader-f16. Arithmetic is f32.)
#include "cache_layout.wgsl"
const UNIT = 8u;
const UNIT_VECS = 2u;
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
    if (shape.tail == 1u) {
      let half = (word_at(cache, token.tile + shape.tails_at + token.t / 2u) >> (16u * (token.t % 2u))) & 0xffffu;
      w |= select(vec4u(0u), vec4u(half), vec4u(0u, 1u, 2u, 3u) == vec4u(shape.rest));
    }
  }
  return Unit(vec4f(unpack2x16float(w.x), unpack2x16float(w.y)), vec4f(unpack2x16float(w.z), unpack2x16float(w.w)));
}
