// H2O: copies the stored row of a token to another slot of the same cached row, bit by bit as it is stored, where
// evict.wgsl chose one. One workgroup a cached row: the words that tokens share belong to it alone. Bindings: 0 params,
// 1 moves [evicting row] (from slot, to slot), 2 cache [evicting row][rows] tiles. Run: lla-sim bench --kernel evict
#include "cache_store.wgsl"

const WG = 64u;
const NONE = 0xffffffffu;

struct Params { shape: RowLayout, capacity: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> moves: array<vec2u>;
@group(0) @binding(2) var<storage, read_write> cache: array<u32>;

fn copy_bits(source: u32, source_shift: u32, target_at: u32, target_shift: u32, bits: u32) {
  let value = (cache[source] >> source_shift) & (0xffffffffu >> (32u - bits));
  cache[target_at] = replace_bits(cache[target_at], target_shift, bits, value);
}

// Workgroups: (cached row of an evicting row, evicting row).
@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) id: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) l: u32
) {
  let chosen = moves[id.y];
  if (chosen.x == NONE) { return; }
  let first_tile = (id.y * groups.x + id.x) * (params.capacity / TILE);
  let source = (first_tile + chosen.x / TILE) * params.shape.tile_words;
  let destination = (first_tile + chosen.y / TILE) * params.shape.tile_words;
  let old_token = chosen.x % TILE;
  let new_token = chosen.y % TILE;
  for (var i = l; i < params.shape.units * PLANES; i += WG) {
    cache[destination + main_word(params.shape, new_token, i / PLANES, i % PLANES)] =
        cache[source + main_word(params.shape, old_token, i / PLANES, i % PLANES)];
  }
  for (var c = l; c < params.shape.tail; c += WG) {
    if (BITS == 3u) {
      copy_bits(source + tail_word(params.shape, c, old_token / 16u), 2u * (old_token % 16u),
          destination + tail_word(params.shape, c, new_token / 16u), 2u * (new_token % 16u), 2u);
      copy_bits(source + tail_word(params.shape, c, 2u), old_token, destination + tail_word(params.shape, c, 2u),
          new_token, 1u);
    } else {
      let each = 32u / BITS;
      copy_bits(source + tail_word(params.shape, c, old_token / each), BITS * (old_token % each),
          destination + tail_word(params.shape, c, new_token / each), BITS * (new_token % each), BITS);
    }
  }
  for (var g = l; g < params.shape.groups; g += WG) {
    copy_bits(source + scale_word(params.shape, g, old_token / 2u), 16u * (old_token % 2u),
        destination + scale_word(params.shape, g, new_token / 2u), 16u * (new_token % 2u), 16u);
  }
}
