// Cached rows of 3-bit codes with f16 scales: a unit is three words, 32 components; words 0 and 1 hold the low two bits of
// components 0 to 15 and 16 to 31, word 2 the high bits.
const BITS = 3u;
const UNIT = 32u;
const UNIT_VECS = 8u;
#include "storage_codes.wgsl"

fn unit_codes(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, unit: u32) -> Unit {
  let low = vec2u(unit_word(cache, shape, token, 3u * unit), unit_word(cache, shape, token, 3u * unit + 1u));
  let high = unit_word(cache, shape, token, 3u * unit + 2u);
  var out: Unit;
  for (var v = 0u; v < UNIT_VECS; v++) {
    let i = vec4u(4u * v) + vec4u(0u, 1u, 2u, 3u);
    let two = (vec4u(select(low.x, low.y, v >= 4u)) >> (2u * (i % vec4u(16u)))) & vec4u(3u);
    out[v] = vec4f(two + 4u * ((vec4u(high) >> i) & vec4u(1u)));
  }
  return out;
}

// The code of a tail component, whose tokens share words as components share those of a unit.
fn tail_code(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, component: u32) -> u32 {
  let at = token.tile + shape.tails_at + component * BITS;
  let two = (word_at(cache, at + token.t / 16u) >> (2u * (token.t % 16u))) & 3u;
  return two + 4u * ((word_at(cache, at + 2u) >> token.t) & 1u);
}
