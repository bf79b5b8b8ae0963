// Rotary embedding: (x, y) -> (x cos - y sin, x sin + y cos) at angle theta_m * position, for every pair m; in place,
// or, for the first heads of a row, elsewhere. Pairs are (m, m + pairs), half-split, or (2m, 2m + 1), adjacent.
// Bindings: 0 params, 1 positions [row] u32, 2 turns (rotary.wgsl), 3 data [row][head][2 pairs] f32 (see data_offset),
// 4 bias [head] [2 pairs] f32 (any buffer without bias), 5 target (any buffer in place). Run: lla-sim bench --kernel
// rope
#include "rotary.wgsl"

const WG = 128u;

struct Params {
  count: u32,            // rows * heads * pairs
  heads: u32,
  pairs: u32,
  adjacent: u32,
  position_offset: u32,  // added to every position, modulo 2^32
  biased: u32,           // 1: bias is added before the rotation
  elsewhere: u32,        // heads whose results go to `target`, the first ones
  data_offset: u32,      // float of row 0, head 0; heads follow each other
  data_stride: u32,      // floats from a row to the next
  target_offset: u32,
  target_stride: u32,
  target_head: u32,      // floats from a head to the next
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> positions: array<u32>;
@group(0) @binding(2) var<storage, read> turns: array<vec2f>;
@group(0) @binding(3) var<storage, read_write> data: array<f32>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> destination: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  for (var i = id.x; i < params.count; i += groups.x * WG) {
    let m = i % params.pairs;
    let head = (i / params.pairs) % params.heads;
    let row = i / params.pairs / params.heads;
    let turn = turn_at(&turns, params.pairs, positions[row] + params.position_offset, m);
    let pair = pair_rows(m, params.pairs, params.adjacent);
    let in_row = head * 2u * params.pairs + pair;
    let at = params.data_offset + row * params.data_stride + in_row;
    var x = vec2f(data[at.x], data[at.y]);
    if (params.biased == 1u) { x += vec2f(bias[in_row.x], bias[in_row.y]); }
    let y = rotated(x, turn);
    if (head < params.elsewhere) {
      let to = params.target_offset + row * params.target_stride + head * params.target_head + pair;
      destination[to.x] = y.x;
      destination[to.y] = y.y;
    } else {
      data[at.x] = y.x;
      data[at.y] = y.y;
    }
  }
}
