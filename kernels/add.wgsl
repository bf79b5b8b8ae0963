// target += input, element by element: the residual of a model without sandwich norms.
// Bindings: 0 params, 1 input, 2 target, both f32. Run: lla-sim bench --kernel rmsnorm --variant add
const WG = 256u;

struct Params { count: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> input: array<f32>;
@group(0) @binding(2) var<storage, read_write> destination: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  for (var i = id.x; i < params.count; i += groups.x * WG) { destination[i] += input[i]; }
}
