// output = gate / (1 + e^-gate) * up; a row of the input holds `width` gates, then `width` ups.
// Bindings: 0 params, 1 input [row][2 width], 2 output [row][width], f32 (see offsets and strides). Run: lla-sim bench
// --kernel swiglu
const WG = 256u;

struct Params {
  count: u32,           // rows * width
  width: u32,
  input_offset: u32,    // float of row 0
  input_stride: u32,    // floats from a row to the next
  output_offset: u32,
  output_stride: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> input: array<f32>;
@group(0) @binding(2) var<storage, read_write> output: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  for (var i = id.x; i < params.count; i += groups.x * WG) {
    let row = i / params.width;
    let column = i % params.width;
    let at = params.input_offset + row * params.input_stride + column;
    let gate = input[at];
    output[params.output_offset + row * params.output_stride + column] =
        gate / (1.0 + exp(-gate)) * input[at + params.width];
  }
}
