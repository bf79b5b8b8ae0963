// Cached rows of 3-bit codes with f16 scales: a unit is three words, 32 components; words 0 and 1 hold the low two bits
// of components 0 to 15 and 16 to 31, word 2 the high bits.
const BITS = 3u;
#include "storage_codes.wgsl"
const UNIT = 32u;
const UNIT_VECS = 8u;

// Low and high bits of a unit. The tail of the last one, whose tokens share words, is put where a unit would have it.
fn unit_words(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, unit: u32) -> vec3u {
  if (EDGES == 0u || unit + 1u < shape.units || shape.tail == 0u) {
    return vec3u(unit_word(cache, shape, token, 3u * unit), unit_word(cache, shape, token, 3u * unit + 1u),
        unit_word(cache, shape, token, 3u * unit + 2u));
  }
  var w = vec3u(0u);
  for (var i = 0u; i < shape.tail; i++) {
    let at = token.tile + shape.tails_at + i * BITS;
    let low = ((word_at(cache, at + token.t / 16u) >> (2u * (token.t % 16u))) & 3u) << (2u * (i % 16u));
    let high = ((word_at(cache, at + 2u) >> token.t) & 1u) << i;
    w |= select(vec3u(low, 0u, high), vec3u(0u, low, high), i >= 16u);
  }
  return w;
}

fn load_unit(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, unit: u32) -> Unit {
  let w = unit_words(cache, shape, token, unit);
  let scale = scales_of(cache, shape, token, unit * UNIT).x;
  var out: Unit;
  for (var v = 0u; v < UNIT_VECS; v++) {
    let i = vec4u(4u * v) + vec4u(0u, 1u, 2u, 3u);
    let two = (vec4u(select(w.x, w.y, v >= 4u)) >> (2u * (i % vec4u(16u)))) & vec4u(3u);
    let codes = two + 4u * ((vec4u(w.z) >> i) & vec4u(1u));
    out[v] = fma(vec4f(codes), vec4f(scale), vec4f(-MIDDLE * scale));
  }
  return out;
}
