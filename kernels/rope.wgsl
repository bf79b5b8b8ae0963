// Rotary embedding: (x, y) -> (x cos - y sin, x sin + y cos) at angle theta_m * position, for every pair m. In place, or to `output`
// for the first heads of a row (queries that attention reads side by side). BIAS adds a constant row [head][2 PAIRS] first.
// STYLE 0, half-split: the pair is (m, m + PAIRS). STYLE 1, adjacent: (2m, 2m + 1).
// Bindings: 0 params, 1 positions [row] u32, 2 centres [position / 32][pair] (cos, sin), 3 offsets [pair][position % 32],
// 4 data f32 (where its rows lie: Params), 5 output f32 (any writable buffer without such heads), 6 bias (any buffer without BIAS).
// Run: lla-sim bench --kernel rope
#include "rotary.wgsl"

override HEADS: u32;
override PAIRS: u32;
override STYLE: u32;
override BIAS: u32;
const WG = 128u;

struct Params {
  count: u32,          // rows * HEADS * PAIRS
  offset: u32,         // float of row 0, head 0; heads follow each other
  row: u32,            // floats from a row to the next
  output_heads: u32,   // heads that go to `output`
  output_offset: u32,
  output_row: u32,
  output_head: u32,    // floats from a head to the next
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> positions: array<u32>;
@group(0) @binding(2) var<storage, read> centres: array<vec2f>;
@group(0) @binding(3) var<storage, read> offsets: array<vec2f>;
@group(0) @binding(4) var<storage, read_write> data: array<f32>;
@group(0) @binding(5) var<storage, read_write> output: array<f32>;
@group(0) @binding(6) var<storage, read> bias: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  for (var i = id.x; i < params.count; i += groups.x * WG) {
    let m = i % PAIRS;
    let vector = i / PAIRS;
    let row = vector / HEADS;
    let head = vector % HEADS;
    let position = positions[row];
    let turn = add_angles(centres[(position / ROTARY_BLOCK) * PAIRS + m], offsets[m * ROTARY_BLOCK + position % ROTARY_BLOCK]);
    let base = params.offset + row * params.row + head * 2u * PAIRS;
    let first = select(m, 2u * m, STYLE == 1u);
    let second = select(first + PAIRS, first + 1u, STYLE == 1u);
    var x = data[base + first];
    var y = data[base + second];
    if (BIAS == 1u) {
      x += bias[head * 2u * PAIRS + first];
      y += bias[head * 2u * PAIRS + second];
    }
    let turned = vec2f(x * turn.x - y * turn.y, x * turn.y + y * turn.x);
    if (head < params.output_heads) {
      let at = params.output_offset + row * params.output_row + head * params.output_head;
      output[at + first] = turned.x;
      output[at + second] = turned.y;
    } else {
      data[base + first] = turned.x;
      data[base + second] = turned.y;
    }
  }
}
