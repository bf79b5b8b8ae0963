// Shared by quantised storages: value = scale (code - (2^BITS - 1) / 2), one f16 scale a group of components. Missing
// components of a short last unit read as code 0: a kernel must not use components beyond the width.
#include "cache_layout.wgsl"
const PER_WORD = 32u / BITS;
const CODES = (1u << BITS) - 1u;
const MIDDLE = 0.5 * f32(CODES);
alias Unit = array<vec4f, UNIT_VECS>;

fn token_at(shape: CachedRow, row: u32, tiles: u32, slot: u32) -> Token {
  return token_in_tile(shape, row, tiles, slot);
}

fn scale_at(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, group: u32) -> f32 {
  let both = unpack2x16float(word_at(cache, token.tile + shape.scales_at + group * (TILE_TOKENS / 2u) + token.t / 2u));
  return select(both.x, both.y, token.t % 2u == 1u);
}

// Scales of a unit's first 32 components, and of what follows them. Groups are multiples of 32.
fn scales_of(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, component: u32) -> vec2f {
  let first = component / shape.group_size;
  let scale = scale_at(cache, shape, token, first);
  if (UNIT <= 32u || shape.group_size % 64u == 0u) { return vec2f(scale); }
  // A short last unit may end before the next group, which then has no scale: what lies in its place can be NaN.
  let last = min((component + 32u) / shape.group_size, (shape.tile_words - shape.scales_at) / (TILE_TOKENS / 2u) - 1u);
  return vec2f(scale, scale_at(cache, shape, token, last));
}
