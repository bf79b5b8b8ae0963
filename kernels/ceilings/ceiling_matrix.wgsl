// Multiply-accumulates on matrix units, f16 into f32: 4 independent 16×16×16 chains a subgroup, 32768 flops a round.
// The rate at which any kernel can multiply matrices. Bindings: 0 params, 1 sums (1024 values a subgroup).
// Run: lla-sim calibrate (ceilings), where the adapter has chromium-experimental-subgroup-matrix with this shape.
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;
// l / width is the same for a whole subgroup, which the compiler cannot know.
diagnostic(off, chromium.subgroup_matrix_uniformity);

const WG = 128u;
const SIDE = 16u;

struct Params { rounds: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group: vec3u,
  @builtin(local_invocation_index) l: u32,
  @builtin(subgroup_size) width: u32
) {
  let left = subgroup_matrix_left<f16, SIDE, SIDE>(0.25h);
  let right = subgroup_matrix_right<f16, SIDE, SIDE>(0.125h);
  var a = subgroup_matrix_result<f32, SIDE, SIDE>(0.0f);
  var b = subgroup_matrix_result<f32, SIDE, SIDE>(1.0f);
  var c = subgroup_matrix_result<f32, SIDE, SIDE>(2.0f);
  var d = subgroup_matrix_result<f32, SIDE, SIDE>(3.0f);
  for (var i = 0u; i < params.rounds; i++) {
    a = subgroupMatrixMultiplyAccumulate(left, right, a);
    b = subgroupMatrixMultiplyAccumulate(left, right, b);
    c = subgroupMatrixMultiplyAccumulate(left, right, c);
    d = subgroupMatrixMultiplyAccumulate(left, right, d);
  }
  let at = (group.x * (WG / width) + l / width) * 4u * SIDE * SIDE;
  subgroupMatrixStore<row_major>(&sums, at, a, SIDE);
  subgroupMatrixStore<row_major>(&sums, at + SIDE * SIDE, b, SIDE);
  subgroupMatrixStore<row_major>(&sums, at + 2u * SIDE * SIDE, c, SIDE);
  subgroupMatrixStore<row_major>(&sums, at + 3u * SIDE * SIDE, d, SIDE);
}
