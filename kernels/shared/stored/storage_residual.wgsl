// Cached rows of residual-quant (residual.layout.ts): the anchor R, or bf16(a R) + residual of another loop, all in
// bf16. A unit is 16 components, which share scales.
#include "small_floats.wgsl"
const TILE_TOKENS = 32u;
const UNIT = 16u;
const UNIT_VECS = 4u;
alias Unit = array<vec4f, UNIT_VECS>;

override EDGES: u32;           // 0: threads that share a row have equally many units
override ANCHOR_BITS: u32;     // 4 or 2
override ANCHOR_GROUP: u32;    // components of a scale: 32 or 16
override RESIDUAL_GROUP: u32;

// Words from a tile's start; those of the loop that is read.
struct CachedRow {
  units: u32,
  tile_words: u32,
  anchor_words: u32,       // of a token's codes
  anchor_pairs_at: u32,
  residual_words: u32,     // of a token's codes, 0: the anchor's loop is read
  codes_at: u32,
  pairs_at: u32,
  coefficient_at: u32,
}

// The first word of a token's tile, and its number there.
struct Token { tile: u32, t: u32 }

fn token_at(shape: CachedRow, row: u32, tiles: u32, slot: u32) -> Token {
  return Token((row * tiles + slot / TILE_TOKENS) * shape.tile_words, slot % TILE_TOKENS);
}

// 16 bits of a token, of which each tile has one for every token.
fn field_at(cache: ptr<storage, array<vec4u>, read>, token: Token, at: u32) -> u32 {
  let index = token.tile + at + token.t / 2u;
  return ((*cache)[index / 4u][index % 4u] >> (16u * (token.t % 2u))) & 0xffffu;
}

// Scale and offset of a group. What held NaN has NaN for its scale.
fn pair_at(cache: ptr<storage, array<vec4u>, read>, token: Token, at: u32, group: u32) -> vec2f {
  let both = field_at(cache, token, at + group * (TILE_TOKENS / 2u));
  let scale = select(fp8_value(both >> 8u), bitcast<f32>(0x7fc00000u | both), both >> 8u == 0x7fu);
  return vec2f(scale, fp8_value(both & 0xffu));
}

fn codes_of(word: u32, first: u32, bits: u32) -> vec4f {
  return vec4f((vec4u(word) >> (bits * (vec4u(first) + vec4u(0u, 1u, 2u, 3u)))) & vec4u((1u << bits) - 1u));
}

fn rounded(x: vec4f) -> vec4f { return vec4f(bf16(x.x), bf16(x.y), bf16(x.z), bf16(x.w)); }

fn load_unit(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, unit: u32) -> Unit {
  let pair = pair_at(cache, token, shape.anchor_pairs_at, unit * UNIT / ANCHOR_GROUP);
  // 16 codes of 4 bits are two words, of 2 bits one.
  let first = token.tile + token.t * shape.anchor_words + unit * (ANCHOR_BITS / 2u);
  let four = (*cache)[first / 4u];
  let low = four[first % 4u];
  let high = four[(first + ANCHOR_BITS / 2u - 1u) % 4u];
  let per_word = 32u / ANCHOR_BITS;
  var out: Unit;
  for (var v = 0u; v < UNIT_VECS; v++) {
    let word = select(low, high, 4u * v >= per_word);
    out[v] = rounded(fma(codes_of(word, 4u * v % per_word, ANCHOR_BITS), vec4f(pair.x), vec4f(pair.y)));
  }
  if (shape.residual_words == 0u) { return out; }
  let a = bitcast<f32>(field_at(cache, token, shape.coefficient_at) << 16u);
  let rest = token.tile + shape.codes_at + token.t * shape.residual_words + unit;
  let codes = (*cache)[rest / 4u][rest % 4u];
  let own = pair_at(cache, token, shape.pairs_at, unit * UNIT / RESIDUAL_GROUP);
  for (var v = 0u; v < UNIT_VECS; v++) {
    out[v] = rounded(rounded(a * out[v]) + fma(codes_of(codes, 4u * v, 2u), vec4f(own.x), vec4f(own.y)));
  }
  return out;
}
