// Rotary embedding in place: (x, y) -> (x cos - y sin, x sin + y cos) at angle theta_m * position, for every pair m.
// STYLE 0, half-split: the pair is (m, m + PAIRS). STYLE 1, adjacent: (2m, 2m + 1).
// Bindings: 0 params, 1 positions [row] u32, 2 centres [position / 32][pair] (cos, sin), 3 offsets [pair][position % 32],
// 4 data [row][head][2 PAIRS] f32. Run: lla-sim bench --kernel rope
#include "rotary.wgsl"

override HEADS: u32;
override PAIRS: u32;
override STYLE: u32;
const WG = 128u;

struct Params { count: u32 }   // rows * HEADS * PAIRS
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> positions: array<u32>;
@group(0) @binding(2) var<storage, read> centres: array<vec2f>;
@group(0) @binding(3) var<storage, read> offsets: array<vec2f>;
@group(0) @binding(4) var<storage, read_write> data: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  for (var i = id.x; i < params.count; i += groups.x * WG) {
    let m = i % PAIRS;
    let vector = i / PAIRS;
    let position = positions[vector / HEADS];
    let turn = add_angles(centres[(position / ROTARY_BLOCK) * PAIRS + m], offsets[m * ROTARY_BLOCK + position % ROTARY_BLOCK]);
    let base = vector * 2u * PAIRS;
    let first = base + select(m, 2u * m, STYLE == 1u);
    let second = select(first + PAIRS, first + 1u, STYLE == 1u);
    let x = data[first];
    let y = data[second];
    data[first] = x * turn.x - y * turn.y;
    data[second] = x * turn.y + y * turn.x;
  }
}
