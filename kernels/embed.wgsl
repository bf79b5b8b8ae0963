// Token embedding: rows of a table of f16 pairs, gathered to f32.
// Bindings: 0 params, 1 tokens [row] u32, 2 embedding [vocabulary][PAIRS] pairs, 3 output [row][2 PAIRS] f32.
// Run: lla-sim bench --kernel embed
#element

override PAIRS: u32;
const WG = 128u;

struct Params { count: u32 }   // rows * PAIRS
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> tokens: array<u32>;
@group(0) @binding(2) var<storage, read> embedding: array<Pair>;
@group(0) @binding(3) var<storage, read_write> output: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  for (var i = id.x; i < params.count; i += groups.x * WG) {
    let value = load_pair(embedding[tokens[i / PAIRS] * PAIRS + i % PAIRS]);
    output[2u * i] = value.x;
    output[2u * i + 1u] = value.y;
  }
}
