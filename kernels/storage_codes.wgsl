// What quantised storages share: value = scale (code - (2^BITS - 1) / 2), one f16 scale a group of components.
#include "cache_layout.wgsl"
alias Unit = array<vec4f, UNIT_VECS>;

override EDGES: u32;   // 0: rows are whole units

const CODES = (1u << BITS) - 1u;

fn scale_of(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, component: u32) -> f32 {
  let group = component / shape.group_size;
  let both = word_at(cache, token.tile + shape.scales_at + group * (TILE_TOKENS / 2u) + token.t / 2u);
  return select(unpack2x16float(both).x, unpack2x16float(both).y, token.t % 2u == 1u);
}

fn load_unit(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, unit: u32) -> Unit {
  let scale = scale_of(cache, shape, token, unit * UNIT);
  let middle = 0.5 * f32(CODES);
  var out: Unit;
  if (EDGES == 0u || unit + 1u < shape.units || shape.tail == 0u) {
    out = unit_codes(cache, shape, token, unit);
    for (var v = 0u; v < UNIT_VECS; v++) { out[v] = scale * (out[v] - middle); }
  } else {
    for (var v = 0u; v < UNIT_VECS; v++) { out[v] = vec4f(0.0); }
    for (var i = 0u; i < shape.tail; i++) { out[i / 4u][i % 4u] = scale * (f32(tail_code(cache, shape, token, i)) - middle); }
  }
  return out;
}
