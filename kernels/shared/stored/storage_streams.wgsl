// Cached rows of flashloop: packed tokens, whose loops are sums of streams (streams.wgsl), and the exact tokens behind
// them, rows of f16 in a ring of their own. A unit is eight channels. Sums are rounded as the codec rounds them.
#include "streams.wgsl"
const TILE_TOKENS = 32u;
const UNIT = 8u;
const UNIT_VECS = 2u;
alias Unit = array<vec4f, UNIT_VECS>;

override EDGES: u32;   // 0: threads that share a row have equally many units

struct CachedRow {
  streams: Streams,
  units: u32,
  loops: u32,           // that are added up
  tail_slots: u32,      // of the ring of exact tokens
  sharing: u32,         // query heads whose workgroups read the same row: 1 unless each reads tokens of its own
  list_words: u32,      // of a query head's list of chosen tokens
  first_list: u32,      // lists before that of the call's first query head
  spare: u32,
  spare1: u32,
}

@group(0) @binding(8) var<storage, read> tail_keys: array<vec4u>;
@group(0) @binding(9) var<storage, read> tail_values: array<vec4u>;

var<private> packed_tokens: u32;   // of the sequence

// The first word of its group and its number there, or its place among the exact rows.
struct Token { packed: bool, at: u32, t: u32 }

fn token_at(shape: CachedRow, row: u32, tiles: u32, slot: u32) -> Token {
  if (slot < packed_tokens) {
    return Token(true, row * shape.streams.row_words + (slot / GROUP) * shape.streams.group_words, slot % GROUP);
  }
  return Token(false, row * shape.tail_slots + slot % shape.tail_slots, 0u);
}

fn word_at(cache: ptr<storage, array<vec4u>, read>, index: u32) -> u32 { return (*cache)[index / 4u][index % 4u]; }

fn codes_at(cache: ptr<storage, array<vec4u>, read>, at: u32, bits: u32) -> Unit {
  let shifts = bits * vec4u(0u, 1u, 2u, 3u);
  let mask = vec4u((1u << bits) - 1u);
  let first = word_at(cache, at / 32u) >> (at % 32u);
  var second = first >> ((4u * bits) % 32u);
  if (bits == 8u) { second = word_at(cache, at / 32u + 1u); }
  return Unit(vec4f((vec4u(first) >> shifts) & mask), vec4f((vec4u(second) >> shifts) & mask));
}

fn four_pairs(pairs: vec4u, codes: vec4f) -> vec4f {
  let a = unpack2x16float(pairs.x);
  let b = unpack2x16float(pairs.y);
  let c = unpack2x16float(pairs.z);
  let d = unpack2x16float(pairs.w);
  return half4(codes * vec4f(a.x, b.x, c.x, d.x) + vec4f(a.y, b.y, c.y, d.y));
}

fn load_unit(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, unit: u32) -> Unit {
  if (!token.packed) {
    let at = token.at * shape.units + unit;
    var w: vec4u;
    if (shape.streams.values == 1u) { w = tail_values[at]; } else { w = tail_keys[at]; }
    return Unit(vec4f(unpack2x16float(w.x), unpack2x16float(w.y)), vec4f(unpack2x16float(w.z), unpack2x16float(w.w)));
  }
  var x = Unit(vec4f(0.0), vec4f(0.0));
  for (var loop_of = 0u; loop_of < shape.loops; loop_of++) {
    let bits = bits_of(loop_of);
    let first = 32u * (token.at + loop_at(shape.streams, loop_of)) +
        bits * (token.t * shape.streams.width + UNIT * unit);
    let codes = codes_at(cache, first, bits);
    let pairs = token.at + pairs_at(shape.streams, loop_of);
    var a: vec4u;
    var b: vec4u;
    if (shape.streams.values == 1u) {
      a = vec4u(word_at(cache, pairs + pair_of(shape.streams, token.t, UNIT * unit)));
      b = a;
    } else {
      a = (*cache)[pairs / 4u + 2u * unit];
      b = (*cache)[pairs / 4u + 2u * unit + 1u];
    }
    x = Unit(half4(x[0] + four_pairs(a, codes[0])), half4(x[1] + four_pairs(b, codes[1])));
  }
  return x;
}
