// Codes of which whole words hold a power of two (BITS 8, 4 or 2): a unit is four words.
#include "storage_codes.wgsl"
const UNIT = 4u * PER_WORD;
const UNIT_VECS = PER_WORD;

// The words of a unit; the last one may be short: what it lacks is filled with zeros, and its tail, whose tokens share
// words, is put where a unit would have it.
fn unit_words(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, unit: u32) -> vec4u {
  if (EDGES == 1u && unit >= shape.quads) {
    let at = token.tile + TILE_TOKENS * 4u * shape.quads + token.t;
    var w = vec4u(0u);
    if (shape.rest > 0u) { w.x = word_at(cache, at); }
    if (shape.rest > 1u) { w.y = word_at(cache, at + TILE_TOKENS); }
    if (shape.rest > 2u) { w.z = word_at(cache, at + 2u * TILE_TOKENS); }
    var tail = 0u;
    for (var i = 0u; i < shape.tail; i++) {
      let shared_word = word_at(cache, token.tile + shape.tails_at + i * BITS + token.t / PER_WORD);
      tail |= ((shared_word >> (BITS * (token.t % PER_WORD))) & CODES) << (BITS * i);
    }
    return w | select(vec4u(0u), vec4u(tail), vec4u(0u, 1u, 2u, 3u) == vec4u(shape.rest));
  }
  // Not every tile starts at a whole quad.
  let first = token.tile + token.t * 4u * shape.quads + 4u * unit;
  if (EDGES == 0u) { return (*cache)[first / 4u]; }
  return vec4u(word_at(cache, first), word_at(cache, first + 1u), word_at(cache, first + 2u),
      word_at(cache, first + 3u));
}

fn load_unit(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, unit: u32) -> Unit {
  let w = unit_words(cache, shape, token, unit);
  let scales = scales_of(cache, shape, token, unit * UNIT);
  var out: Unit;
  for (var v = 0u; v < UNIT_VECS; v++) {
    let codes = (vec4u(w[4u * v / PER_WORD]) >> (BITS *
        (vec4u(4u * v % PER_WORD) + vec4u(0u, 1u, 2u, 3u)))) & vec4u(CODES);
    let scale = select(scales.x, scales.y, 4u * v >= 32u);
    out[v] = fma(vec4f(codes), vec4f(scale), vec4f(-MIDDLE * scale));
  }
  return out;
}
