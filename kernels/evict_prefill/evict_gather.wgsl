// H2O: copies the stored rows of the tokens that evict_prefill.wgsl chose from the run's rows, in the slots of their
// positions, to their slots of the cache, bit by bit. One workgroup a tile of the cache: the words that tokens share
// belong to it alone. Bindings: 0 params, 1 positions [evicting row][slot], 2 run [evicting row][rows] tiles, 3 cache
// [evicting row][rows] tiles. Run: lla-sim bench --kernel evict_prefill
#include "cache_store.wgsl"

const WG = 64u;
const NONE = 0xffffffffu;

struct Params {
  shape: RowLayout,
  rows: u32,            // cached rows of an evicting row
  run_capacity: u32,    // slots of a row of the run
  capacity: u32,        // slots of a row of the cache
  pinned: u32,          // slots before the ring
  pinned_tokens: u32,   // that are filled
  ring_tokens: u32,     // slots of the ring that are filled
  first_row: u32,       // evicting rows before the first in the cache
  spare: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> positions: array<u32>;
@group(0) @binding(2) var<storage, read> run: array<u32>;
@group(0) @binding(3) var<storage, read_write> cache: array<u32>;

var<workgroup> tokens: array<u32, TILE>;   // the token of each slot of the tile, or NONE

fn holds_token(slot: u32) -> bool {
  return slot < params.pinned_tokens || (slot >= params.pinned && slot < params.pinned + params.ring_tokens);
}

// Word and shift of the part of a tile's token t that lies in words such as `word` of a tail component.
fn tail_place(t: u32, word: u32) -> vec2u {
  if (BITS == 3u) { return select(vec2u(t / 16u, 2u * (t % 16u)), vec2u(2u, t), word == 2u); }
  let each = 32u / BITS;
  return vec2u(t / each, BITS * (t % each));
}

fn bits_of(word: u32, shift: u32, bits: u32) -> u32 { return (word >> shift) & (0xffffffffu >> (32u - bits)); }

// Workgroups: (tile, cached row).
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3u, @builtin(local_invocation_index) l: u32) {
  let evicting = params.first_row + id.y / params.rows;
  for (var t = l; t < TILE; t += WG) {
    let slot = id.x * TILE + t;
    tokens[t] = select(NONE, positions[evicting * params.capacity + slot], holds_token(slot));
  }
  workgroupBarrier();
  let first_tile = id.y * (params.run_capacity / TILE);
  let destination = ((params.first_row * params.rows + id.y) * (params.capacity / TILE) + id.x) *
      params.shape.tile_words;
  let words = params.shape.units * PLANES;
  for (var i = l; i < TILE * words; i += WG) {
    let token = tokens[i / words];
    if (token == NONE) { continue; }
    let source = (first_tile + token / TILE) * params.shape.tile_words;
    let unit = (i % words) / PLANES;
    cache[destination + main_word(params.shape, i / words, unit, i % PLANES)] =
        run[source + main_word(params.shape, token % TILE, unit, i % PLANES)];
  }
  for (var i = l; i < params.shape.tail * BITS; i += WG) {
    let w = i % BITS;
    let at = destination + tail_word(params.shape, i / BITS, w);
    var word = cache[at];
    for (var e = 0u; e < tail_count(w); e++) {
      let token = tokens[tail_first(w) + e];
      if (token == NONE) { continue; }
      let place = tail_place(token % TILE, w);
      let source = (first_tile + token / TILE) * params.shape.tile_words + tail_word(params.shape, i / BITS, place.x);
      word = replace_bits(word, tail_bits(w) * e, tail_bits(w), bits_of(run[source], place.y, tail_bits(w)));
    }
    cache[at] = word;
  }
  for (var i = l; i < params.shape.groups * (TILE / 2u); i += WG) {
    let at = destination + scale_word(params.shape, i / (TILE / 2u), i % (TILE / 2u));
    var word = cache[at];
    for (var e = 0u; e < 2u; e++) {
      let token = tokens[2u * (i % (TILE / 2u)) + e];
      if (token == NONE) { continue; }
      let source = (first_tile + token / TILE) * params.shape.tile_words +
          scale_word(params.shape, i / (TILE / 2u), (token % TILE) / 2u);
      word = replace_bits(word, 16u * e, 16u, bits_of(run[source], 16u * (token % 2u), 16u));
    }
    cache[at] = word;
  }
}
