// The input of a later loop: target = embedding + factor * the state that the token before had after the loop before
// (nothing before the first token). The state that comes in, which is this token's, is kept for the next one: a row has
// room for two, by even and odd positions, so a step that is done again reads the same.
// Bindings: 0 params, 1 positions [row], 2 embedding [row][width], 3 states [row][2][width], in place, 4 target
// [row][width], in place. Run: lla-sim bench --kernel shift
const WG = 256u;

struct Params {
  factor: f32,
  count: u32,           // rows * width
  width: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> positions: array<u32>;
@group(0) @binding(2) var<storage, read> embedding: array<f32>;
@group(0) @binding(3) var<storage, read_write> states: array<f32>;
@group(0) @binding(4) var<storage, read_write> destination: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  for (var i = id.x; i < params.count; i += groups.x * WG) {
    let row = i / params.width;
    let column = i % params.width;
    let position = positions[row];
    let own = (2u * row + position % 2u) * params.width + column;
    let before = (2u * row + (position + 1u) % 2u) * params.width + column;
    var x = embedding[i];
    if (position > 0u) { x += params.factor * states[before]; }
    states[own] = destination[i];
    destination[i] = x;
  }
}
