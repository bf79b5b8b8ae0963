// Writes new rows of every sequence to the cache, f32 -> stored words: one token in decoding, a chunk of them in
// prefill. Token i of a sequence has position start + i. Positions below `sinks` are stored in the slot of their
// number, all others in the ring: slot = pinned + position mod ring. Of tokens with the same slot the last stays.
//
//   quantised, per token and group:
//   s = f16(2 max|x| / (2^n - 1)),
//   q = clamp(round(x / s + (2^n - 1) / 2), 0, 2^n - 1)
//
// A workgroup owns the words of one block of components (a group, where quantised) in the tiles whose last new token is
// among 32 tokens of its own, so that no other workgroup writes the words which tokens share (tails, scales). Bindings:
// 0 params, 1 starts [sequence] u32, 2 rows f32 (see row_offset), 3 bias [head][width] f32 (any buffer without BIAS), 4
// cache. Run: lla-sim bench --kernel append
#include "cache_store.wgsl"

override BIAS: u32;    // 1: `bias` is added to every row
const WG = 64u;
const NONE = 0xffffffffu;

struct Params {
  shape: RowLayout,
  chunk: u32,          // new tokens of a sequence
  capacity: u32,       // slots of a row, whole tiles
  pinned: u32,         // slots before the ring
  ring: u32,           // slots of the ring
  sinks: u32,          // positions that lie in the slot of their number
  block: u32,          // components of a workgroup
  row_offset: u32,     // first float of token 0, head 0; heads follow each other
  row_stride: u32,     // floats from a token to the next, through all sequences
  first: u32,          // added to every start
  first_row: u32,      // cached row of the first sequence's first head
  first_start: u32,    // where in `starts` the sequences begin
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> starts: array<u32>;
@group(0) @binding(2) var<storage, read> rows: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> cache: array<u32>;

var<workgroup> new_tokens: array<u32, TILE>;   // the new token that stays in each slot of the tile, or NONE
var<workgroup> bounds: vec3u;
var<workgroup> peaks: array<atomic<u32>, TILE>;   // bits of the largest magnitude of each token, which order as it does
// As stored. Codes are made from what is read back behind a barrier: compilers take unpack(pack(s)) for s, unrounded.
var<workgroup> scale_halves: array<u32, TILE>;

// Uniform over a workgroup: loops with barriers depend on it.
struct Place {
  start: u32,        // position of the sequence's first new token
  first_row: u32,    // float of token 0 of this sequence and head
  first_bias: u32,
  begin: u32,        // components [begin, end)
  end: u32,
}

fn slot_of(position: u32) -> u32 {
  return select(params.pinned + position % params.ring, position, position < params.sinks);
}

// The new token that stays in a slot, or NONE.
fn token_in(start: u32, slot: u32) -> u32 {
  let last = start + params.chunk - 1u;
  if (slot < params.sinks) { return select(NONE, slot - start, slot >= start && slot <= last); }
  if (slot < params.pinned || slot >= params.pinned + params.ring) { return NONE; }
  let back = (last % params.ring + params.ring - (slot - params.pinned)) % params.ring;
  if (back >= params.chunk || last - back < params.sinks) { return NONE; }
  return last - back - start;
}

// Finds the token that stays in each slot of a tile. Returns its last new token, and its first and last slot that takes
// one.
fn find_tokens(l: u32, place: Place, tile: u32) -> vec3u {
  workgroupBarrier();
  for (var t = l; t < TILE; t += WG) { new_tokens[t] = token_in(place.start, tile * TILE + t); }
  workgroupBarrier();
  if (l == 0u) {
    var found = vec3u(0u, TILE, 0u);
    for (var t = 0u; t < TILE; t++) {
      if (new_tokens[t] != NONE) { found = vec3u(max(found.x, new_tokens[t]), min(found.y, t), t); }
    }
    bounds = found;
  }
  return workgroupUniformLoad(&bounds);
}

fn value_of(place: Place, token: u32, component: u32) -> f32 {
  let x = rows[place.first_row + token * params.row_stride + component];
  if (BIAS == 1u) { return x + bias[place.first_bias + component]; }
  return x;
}

// The stored bits of a component of the tile's token t.
fn code_of(place: Place, token: u32, t: u32, component: u32) -> u32 {
  let x = value_of(place, token, component);
  if (BITS == 32u) { return bitcast<u32>(x); }
  if (BITS == 16u) { return pack2x16float(vec2f(x, 0.0)) & 0xffffu; }
  let levels = f32((1u << (BITS & 31u)) - 1u);
  let scale = unpack2x16float(scale_halves[t]).x;
  if (scale == 0.0) { return 0u; }
  return u32(clamp(round(x / scale + 0.5 * levels), 0.0, levels));
}

fn find_scales(l: u32, place: Place, found: vec3u) {
  for (var t = l; t < TILE; t += WG) { atomicStore(&peaks[t], 0u); }
  workgroupBarrier();
  for (var t = found.y; t <= found.z; t++) {
    let token = new_tokens[t];
    if (token == NONE) { continue; }
    for (var c = place.begin + l; c < place.end; c += WG) {
      atomicMax(&peaks[t], bitcast<u32>(abs(value_of(place, token, c))));
    }
  }
  workgroupBarrier();
  for (var t = l; t < TILE; t += WG) {
    let peak = bitcast<f32>(atomicLoad(&peaks[t]));
    scale_halves[t] = pack2x16float(vec2f(2.0 * peak / f32((1u << (BITS & 31u)) - 1u), 0.0)) & 0xffffu;
  }
  workgroupBarrier();
}

fn store_scales(l: u32, tile_at: u32, group: u32) {
  for (var w = l; w < TILE / 2u; w += WG) {
    let at = tile_at + scale_word(params.shape, group, w);
    var word = cache[at];
    for (var e = 0u; e < 2u; e++) {
      let t = 2u * w + e;
      if (new_tokens[t] != NONE) { word = replace_bits(word, 16u * e, 16u, scale_halves[t]); }
    }
    cache[at] = word;
  }
}

fn unit_word(place: Place, token: u32, t: u32, unit: u32, plane: u32) -> u32 {
  var word = 0u;
  if (BITS == 3u) {
    let first = unit * UNIT + select(plane * 16u, 0u, plane == 2u);
    for (var e = 0u; e < tail_count(plane); e++) {
      word |= tail_part(code_of(place, token, t, first + e), plane) << (tail_bits(plane) * e);
    }
  } else {
    for (var e = 0u; e < UNIT; e++) { word |= code_of(place, token, t, unit * UNIT + e) << (BITS * e); }
  }
  return word;
}

fn store_tile(l: u32, place: Place, found: vec3u, tile_at: u32) {
  let first_unit = place.begin / UNIT;
  let units = min(params.shape.units, place.end / UNIT) - first_unit;
  for (var t = found.y; t <= found.z; t++) {
    let token = new_tokens[t];
    if (token == NONE) { continue; }
    for (var i = l; i < units * PLANES; i += WG) {
      let unit = first_unit + i / PLANES;
      cache[tile_at + main_word(params.shape, t, unit, i % PLANES)] = unit_word(place, token, t, unit, i % PLANES);
    }
  }
  // Tails lie in the last block: a unit never crosses blocks.
  if (place.end < params.shape.width) { return; }
  let first_tail = params.shape.units * UNIT;
  for (var i = l; i < params.shape.tail * BITS; i += WG) {
    let w = i % BITS;
    let at = tile_at + tail_word(params.shape, i / BITS, w);
    var word = cache[at];
    for (var e = 0u; e < tail_count(w); e++) {
      let t = tail_first(w) + e;
      let token = new_tokens[t];
      if (token != NONE) {
        word = replace_bits(word, tail_bits(w) * e, tail_bits(w),
            tail_part(code_of(place, token, t, first_tail + i / BITS), w));
      }
    }
    cache[at] = word;
  }
}

// Workgroups: (block and 32 tokens, head, sequence).
@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) id: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) l: u32
) {
  let blocks = (params.shape.width + params.block - 1u) / params.block;
  let block = id.x % blocks;
  let first_token = (id.x / blocks) * TILE;
  var place: Place;
  place.start = starts[params.first_start + id.z] + params.first;
  place.first_row = params.row_offset + id.z * params.chunk * params.row_stride + id.y * params.shape.width;
  place.first_bias = id.y * params.shape.width;
  place.begin = block * params.block;
  place.end = min(params.shape.width, place.begin + params.block);
  for (var i = first_token; i < min(params.chunk, first_token + TILE); i++) {
    let tile = slot_of(place.start + i) / TILE;
    if (i + 1u < params.chunk && slot_of(place.start + i + 1u) / TILE == tile) { continue; }
    // A later token may come back to the tile, round the ring.
    let found = find_tokens(l, place, tile);
    if (found.x != i) { continue; }
    let tile_at = ((params.first_row + id.z * groups.y + id.y) * (params.capacity / TILE) + tile) *
        params.shape.tile_words;
    if (quantised()) {
      find_scales(l, place, found);
      store_scales(l, tile_at, block);
    }
    store_tile(l, place, found, tile_at);
  }
}
