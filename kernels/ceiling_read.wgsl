// Reads a buffer once, 16 bytes a thread and step, and keeps a sum so that nothing is optimised away: the rate at which any
// kernel can read. Bindings: 0 params, 1 source, 2 sums. Run: lla-sim calibrate (ceilings).
const WG = 256u;

struct Params { quads: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> source: array<vec4f>;
@group(0) @binding(2) var<storage, read_write> sums: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  var sum = vec4f(0.0);
  for (var i = id.x; i < params.quads; i += groups.x * WG) { sum += source[i]; }
  sums[id.x] = sum.x + sum.y + sum.z + sum.w;
}
