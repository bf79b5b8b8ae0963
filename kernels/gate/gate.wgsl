// target *= 1 / (1 + e^-input), element by element: a gate of attention's output.
// Bindings: 0 params, 1 input [row][width], 2 target [row][width], f32 (see offsets and strides). Run: lla-sim bench
// --kernel gate
const WG = 256u;

struct Params {
  count: u32,           // rows * width
  width: u32,
  input_offset: u32,    // float of row 0
  input_stride: u32,    // floats from a row to the next
  target_offset: u32,
  target_stride: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> input: array<f32>;
@group(0) @binding(2) var<storage, read_write> destination: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  for (var i = id.x; i < params.count; i += groups.x * WG) {
    let row = i / params.width;
    let column = i % params.width;
    destination[params.target_offset + row * params.target_stride + column] /=
        1.0 + exp(-input[params.input_offset + row * params.input_stride + column]);
  }
}
