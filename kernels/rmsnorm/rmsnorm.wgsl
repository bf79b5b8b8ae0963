// n(x) = x / sqrt(mean(x^2) + eps) * weight, over the width of a row. One workgroup a row.
// target = n(input) (norm), or target += n(input) (norm-add), the sandwich norm before a residual.
// Bindings: 0 params, 1 input [row][width], 2 weight [width], 3 target [row][width], all f32 (see offsets and strides).
// Run: lla-sim bench --kernel rmsnorm
override WG: u32;

struct Params {
  eps: f32,
  rows: u32,
  width: u32,
  added: u32,           // 1: norm-add
  input_offset: u32,    // float of row 0
  input_stride: u32,    // floats from a row to the next
  target_offset: u32,
  target_stride: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> input: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> destination: array<f32>;

const REDUCERS = 16u;
var<workgroup> squares: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group_id: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) l: u32
) {
  // Rows fill a plane of workgroups where one line does not hold them.
  let row = group_id.y * groups.x + group_id.x;
  if (row >= params.rows) { return; }
  let width = params.width;
  let source = params.input_offset + row * params.input_stride;
  let sink = params.target_offset + row * params.target_stride;
  var sum = 0.0;
  for (var i = l; i < width; i += WG) { sum += input[source + i] * input[source + i]; }
  squares[l] = sum;
  workgroupBarrier();
  if (l < REDUCERS) {
    for (var i = l + REDUCERS; i < WG; i += REDUCERS) { sum += squares[i]; }
    squares[l] = sum;
  }
  workgroupBarrier();
  var total = 0.0;
  for (var i = 0u; i < REDUCERS; i++) { total += squares[i]; }
  // Not inverseSqrt: WGSL allows it 2 ulp, and software drivers use more.
  let factor = 1.0 / sqrt(total / f32(width) + params.eps);
  for (var i = l; i < width; i += WG) {
    let n = input[source + i] * factor * weight[i];
    if (params.added == 1u) { destination[sink + i] += n; } else { destination[sink + i] = n; }
  }
}
