// Cached rows of 4-bit codes with f16 scales: a unit is one word, 8 components.
const BITS = 4u;
const UNIT = 8u;
const UNIT_VECS = 2u;
#include "storage_codes.wgsl"

fn unit_codes(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, unit: u32) -> Unit {
  let w = unit_word(cache, shape, token, unit);
  var out: Unit;
  for (var v = 0u; v < UNIT_VECS; v++) { out[v] = vec4f((vec4u(w) >> (BITS * (vec4u(4u * v) + vec4u(0u, 1u, 2u, 3u)))) & vec4u(CODES)); }
  return out;
}

// The code of a tail component, whose tokens share words.
fn tail_code(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, component: u32) -> u32 {
  let w = word_at(cache, token.tile + shape.tails_at + component * BITS + token.t / UNIT);
  return (w >> (BITS * (token.t % UNIT))) & CODES;
}
