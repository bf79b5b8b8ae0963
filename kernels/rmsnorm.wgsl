// n(x) = x / sqrt(mean(x^2) + eps) * weight, over the width of a row. One workgroup a row.
// MODE 0 (norm): target = n(input). MODE 1 (norm-add): target += n(input), the sandwich norm before a residual.
// Bindings: 0 params, 1 input [row][WIDTH], 2 weight [WIDTH], 3 target [row][WIDTH], all f32.
// Run: lla-sim bench --kernel rmsnorm
override WG: u32;
override WIDTH: u32;
override MODE: u32;

struct Params { eps: f32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> input: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> destination: array<f32>;

const REDUCERS = 16u;
var<workgroup> squares: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(local_invocation_index) l: u32) {
  let base = group_id.x * WIDTH;
  var sum = 0.0;
  for (var i = l; i < WIDTH; i += WG) { sum += input[base + i] * input[base + i]; }
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
  let factor = 1.0 / sqrt(total / f32(WIDTH) + params.eps);
  for (var i = l; i < WIDTH; i += WG) {
    let n = input[base + i] * factor * weight[i];
    if (MODE == 1u) { destination[base + i] += n; } else { destination[base + i] = n; }
  }
}
