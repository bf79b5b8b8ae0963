// Reads a buffer once, 16 bytes a thread and step, and keeps a sum so that nothing is optimised away: the rate at which
// any kernel can read. With `stream` 0 all threads step over the buffer together, which suits a GPU; else each `stream`
// neighbouring threads walk a run of their own, which suits a software adapter, whose cores take one subgroup after the
// other.
// Bindings: 0 params, 1 source, 2 sums. Run: lla-sim calibrate (ceilings).
const WG = 256u;

struct Params { quads: u32, stream: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> source: array<vec4f>;
@group(0) @binding(2) var<storage, read_write> sums: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  var sum = vec4f(0.0);
  let threads = groups.x * WG;
  let run = select(params.quads / (threads / max(params.stream, 1u)), params.quads, params.stream == 0u);
  let step = select(params.stream, threads, params.stream == 0u);
  let start = select((id.x / max(params.stream, 1u)) * run + id.x % max(params.stream, 1u), id.x, params.stream == 0u);
  let end = select((id.x / max(params.stream, 1u) + 1u) * run, params.quads, params.stream == 0u);
  for (var i = start; i < end; i += step) { sum += source[i]; }
  sums[id.x] = sum.x + sum.y + sum.z + sum.w;
}
