// Token embedding: rows of a table of f16 pairs, gathered to f32.
// Bindings: 0 params, 1 tokens [row] u32, 2 embedding [vocabulary][pairs] pairs, 3 output [row][2 pairs] f32 (see offset).
// Run: lla-sim bench --kernel embed
#element

const WG = 128u;

struct Params {
  count: u32,    // rows * pairs
  pairs: u32,
  offset: u32,   // float of output row 0
  stride: u32,   // floats from a row to the next
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> tokens: array<u32>;
@group(0) @binding(2) var<storage, read> embedding: array<Pair>;
@group(0) @binding(3) var<storage, read_write> output: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  for (var i = id.x; i < params.count; i += groups.x * WG) {
    let row = i / params.pairs;
    let pair = i % params.pairs;
    let value = load_pair(embedding[tokens[row] * params.pairs + pair]);
    let to = params.offset + row * params.stride + 2u * pair;
    output[to] = value.x;
    output[to + 1u] = value.y;
  }
}
