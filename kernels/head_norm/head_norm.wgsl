// n(x) = x / sqrt(mean(x^2) + eps) * weight over the width of a head, in place. One workgroup a head of a row.
// Bindings: 0 params, 1 weight [width], 2 target [row][head][width], f32 (see offset and stride). Run: lla-sim bench
// --kernel head_norm
override WG: u32;

struct Params {
  eps: f32,
  heads: u32,
  count: u32,           // rows * heads
  width: u32,
  target_offset: u32,   // float of row 0, head 0; heads follow each other
  target_stride: u32,   // floats from a row to the next
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> data: array<f32>;

var<workgroup> squares: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group_id: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) l: u32
) {
  // Heads fill a plane of workgroups where one line does not hold them.
  let head = group_id.y * groups.x + group_id.x;
  if (head >= params.count) { return; }
  let width = params.width;
  let at = params.target_offset + head / params.heads * params.target_stride + head % params.heads * width;
  var sum = 0.0;
  for (var i = l; i < width; i += WG) { sum += data[at + i] * data[at + i]; }
  squares[l] = sum;
  workgroupBarrier();
  var total = 0.0;
  for (var i = 0u; i < WG; i++) { total += squares[i]; }
  // Not inverseSqrt: WGSL allows it 2 ulp, and software drivers use more.
  let factor = 1.0 / sqrt(total / f32(width) + params.eps);
  for (var i = l; i < width; i += WG) { data[at + i] *= factor * weight[i]; }
}
