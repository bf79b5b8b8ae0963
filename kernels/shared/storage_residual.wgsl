// Cached rows of residual-quant (residual.layout.ts): the anchor R, or bf16(a R) + residual of another loop, all in
// bf16. A unit is 32 components: a group of the anchor.
#include "small_floats.wgsl"
const TILE_TOKENS = 32u;
const UNIT = 32u;
const UNIT_VECS = 8u;
alias Unit = array<vec4f, UNIT_VECS>;

override EDGES: u32;           // 0: threads that share a row have equally many units
override ANCHOR_BITS: u32;     // 4 or 2
override RESIDUAL_GROUP: u32;  // components of a residual's scale: 32 or 16

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

// Two words from an even one on.
fn two_words(cache: ptr<storage, array<vec4u>, read>, index: u32) -> vec2u {
  let four = (*cache)[index / 4u];
  return select(four.xy, four.zw, (index & 2u) != 0u);
}

fn codes_of(word: u32, first: u32, bits: u32) -> vec4f {
  return vec4f((vec4u(word) >> (bits * (vec4u(first) + vec4u(0u, 1u, 2u, 3u)))) & vec4u((1u << bits) - 1u));
}

fn load_unit(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, unit: u32) -> Unit {
  let anchor_pair = pair_at(cache, token, shape.anchor_pairs_at, unit);
  var words: vec4u;
  let first = token.tile + token.t * shape.anchor_words + unit * ANCHOR_BITS;
  if (ANCHOR_BITS == 4u) { words = (*cache)[first / 4u]; } else { words = vec4u(two_words(cache, first), 0u, 0u); }
  var out: Unit;
  let per_word = 32u / ANCHOR_BITS;
  for (var v = 0u; v < UNIT_VECS; v++) {
    let r = fma(codes_of(words[4u * v / per_word], 4u * v % per_word, ANCHOR_BITS), vec4f(anchor_pair.x),
        vec4f(anchor_pair.y));
    out[v] = vec4f(bf16(r.x), bf16(r.y), bf16(r.z), bf16(r.w));
  }
  if (shape.residual_words == 0u) { return out; }
  let a = bitcast<f32>(field_at(cache, token, shape.coefficient_at) << 16u);
  let rest = two_words(cache, token.tile + shape.codes_at + token.t * shape.residual_words + unit * 2u);
  let groups = UNIT / RESIDUAL_GROUP;
  let low = pair_at(cache, token, shape.pairs_at, unit * groups);
  let high = pair_at(cache, token, shape.pairs_at, unit * groups + groups - 1u);
  for (var v = 0u; v < UNIT_VECS; v++) {
    let pair = select(low, high, v >= UNIT_VECS / 2u);
    let e = fma(codes_of(rest[v / 4u], 4u * (v % 4u), 2u), vec4f(pair.x), vec4f(pair.y));
    let r = a * out[v];
    let x = vec4f(bf16(r.x), bf16(r.y), bf16(r.z), bf16(r.w)) + e;
    out[v] = vec4f(bf16(x.x), bf16(x.y), bf16(x.z), bf16(x.w));
  }
  return out;
}
