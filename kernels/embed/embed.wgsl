// Token embedding: rows of a table of f16 pairs, gathered to f32; or columns, where the table is a tied output
// projection's weights.
// Bindings: 0 params, 1 tokens [row] u32, 2 embedding [vocabulary][pairs] pairs, or [2 pairs][column_pairs], 3 output
// [row][2 pairs] f32 (see offset).
// Run: lla-sim bench --kernel embed
#element

const WG = 128u;

struct Params {
  count: u32,    // rows * pairs
  pairs: u32,
  offset: u32,   // float of output row 0
  stride: u32,   // floats from a row to the next
  column_pairs: u32,   // pairs of vocabulary entries in a row of the table; 0: rows are tokens
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
    let token = tokens[row];
    var value: vec2f;
    if (params.column_pairs == 0u) {
      value = load_pair(embedding[token * params.pairs + pair]);
    } else {
      let at = 2u * pair * params.column_pairs + token / 2u;
      value = vec2f(load_pair(embedding[at])[token % 2u], load_pair(embedding[at + params.column_pairs])[token % 2u]);
    }
    let to = params.offset + row * params.stride + 2u * pair;
    output[to] = value.x;
    output[to + 1u] = value.y;
  }
}
