// output = gate / (1 + e^-gate) * up; a row of the input holds WIDTH gates, then WIDTH ups.
// Bindings: 0 params, 1 input [row][2 WIDTH], 2 output [row][WIDTH], f32. Run: lla-sim bench --kernel swiglu
override WIDTH: u32;
const WG = 256u;

struct Params { count: u32 }   // rows * WIDTH
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> input: array<f32>;
@group(0) @binding(2) var<storage, read_write> output: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  for (var i = id.x; i < params.count; i += groups.x * WG) {
    let at = (i / WIDTH) * 2u * WIDTH + i % WIDTH;
    let gate = input[at];
    output[i] = gate / (1.0 + exp(-gate)) * input[at + WIDTH];
  }
}
