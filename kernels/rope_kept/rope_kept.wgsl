// Rotary embedding of keys that were rebuilt from latents of tokens that H2O has pinned, in place: rope.wgsl where each
// row that evicts on its own has tokens of its own, whose positions lie beside its mass. A row decides for `pooled`
// heads.
// Bindings: 0 params, 1 positions [evicting row][slot] u32, 2 turns (rotary.wgsl), 3 data [token][head][2 pairs] f32
// (see data_offset).
// Run: lla-sim bench --kernel rope_kept
#include "rotary.wgsl"

const WG = 128u;

struct Params {
  count: u32,          // tokens * heads * pairs
  heads: u32,
  pairs: u32,
  adjacent: u32,
  pooled: u32,
  first_row: u32,      // evicting row of head 0
  capacity: u32,       // slots of a row
  first: u32,          // slot of token 0
  data_offset: u32,    // float of token 0, head 0; heads follow each other
  data_stride: u32,    // floats from a token to the next
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> positions: array<u32>;
@group(0) @binding(2) var<storage, read> turns: array<vec2f>;
@group(0) @binding(3) var<storage, read_write> data: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  for (var i = id.x; i < params.count; i += groups.x * WG) {
    let m = i % params.pairs;
    let head = (i / params.pairs) % params.heads;
    let token = i / params.pairs / params.heads;
    let position = positions[(params.first_row + head / params.pooled) * params.capacity + params.first + token];
    let at = params.data_offset + token * params.data_stride + head * 2u * params.pairs +
        pair_rows(m, params.pairs, params.adjacent);
    let y = rotated(vec2f(data[at.x], data[at.y]), turn_at(&turns, params.pairs, position, m));
    data[at.x] = y.x;
    data[at.y] = y.y;
  }
}
