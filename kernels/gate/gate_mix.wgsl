// target = g * target + (1 - g) * other, g = 1 / (1 + e^-(gate + bias)), one g a row: mixes two attentions of a head.
// Bindings: 0 params, 1 gates [row], 2 bias [head], 3 other [row][width], 4 target [row][width], f32. A row is a head
// of a sequence. Run: lla-sim bench --kernel gate --variant mix
const WG = 256u;

struct Params {
  count: u32,           // rows * width
  width: u32,
  heads: u32,           // query heads of a sequence
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> gates: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read> other: array<f32>;
@group(0) @binding(4) var<storage, read_write> destination: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  for (var i = id.x; i < params.count; i += groups.x * WG) {
    let row = i / params.width;
    let g = 1.0 / (1.0 + exp(-(gates[row] + bias[row % params.heads])));
    destination[i] = g * destination[i] + (1.0 - g) * other[i];
  }
}
