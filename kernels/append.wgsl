// Writes one token's row of every sequence to the cache, f32 -> stored pairs. SIDE 0: key layout, 1: value layout.
// Bindings: 0 params, 1 tokens [sequence] u32 (where each sequence's new token goes), 2 rows [sequence][head][2 PAIRS] f32,
// 3 cache. Run: lla-sim bench --kernel append
#element
#include "cache_layout.wgsl"

override HEADS: u32;
override PAIRS: u32;
override SIDE: u32;
const WG = 128u;

struct Params { count: u32, capacity: u32 }   // count: sequences * HEADS * PAIRS
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> tokens: array<u32>;
@group(0) @binding(2) var<storage, read> rows: array<f32>;
@group(0) @binding(3) var<storage, read_write> cache: array<Pair>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  for (var i = id.x; i < params.count; i += groups.x * WG) {
    let row = i / PAIRS;
    let token = tokens[row / HEADS];
    let stored = store_pair(vec2f(rows[2u * i], rows[2u * i + 1u]));
    if (SIDE == 0u) {
      cache[key_index(row, token, i % PAIRS, params.capacity, PAIRS)] = stored;
    } else {
      cache[value_index(row, token, i % PAIRS, params.capacity, PAIRS)] = stored;
    }
  }
}
