// Joins two softmax parts of the same query: tokens attended to by exact rows, and others by latents, whose values come
// without their mean. From each part's row and its maximum and sum (m, l), with M = max(m, m'):
//
//   y = (2^(m - M) l o + 2^(m' - M) l' (o' + mu_v)) / (2^(m - M) l + 2^(m' - M) l')
//
// One workgroup a row (sequence * query heads + head). A part without tokens has l = 0; the exact one holds the current
// token, so it is never empty. Bindings: 0 params, 1 output [row][width], o in place, 2 stats [row] (m, l), written
// again, 3 latent part [row][width], o', 4 its stats [row] (m', l'), 5 value means [KV head][width].
// Run: lla-sim bench --kernel attend_join
override WG: u32;

struct Params {
  rows: u32,    // sequences * query heads
  heads: u32,   // query heads of a sequence
  group: u32,   // query heads that share a KV head
  width: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;
@group(0) @binding(2) var<storage, read_write> stats: array<vec2f>;
@group(0) @binding(3) var<storage, read> latent: array<f32>;
@group(0) @binding(4) var<storage, read> latent_stats: array<vec2f>;
@group(0) @binding(5) var<storage, read> value_means: array<f32>;

var<workgroup> exact: vec2f;   // m and l as they come in

// 2^(m - peak), for m of no scores as well.
fn fade(m: f32, peak: f32) -> f32 { return exp2(max(m - peak, -200.0)); }

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group_id: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) l: u32
) {
  let row = group_id.y * groups.x + group_id.x;
  if (row >= params.rows) { return; }
  if (l == 0u) { exact = stats[row]; }
  workgroupBarrier();
  let other = latent_stats[row];
  // A part without tokens contributes nothing, whatever its products contain.
  if (other.y == 0.0) { return; }
  let peak = max(exact.x, other.x);
  let own = exact.y * fade(exact.x, peak);
  let rest = other.y * fade(other.x, peak);
  let mean = (row % params.heads) / params.group * params.width;
  for (var j = l; j < params.width; j += WG) {
    let at = row * params.width + j;
    output[at] = (own * output[at] + rest * (latent[at] + value_means[mean + j])) / (own + rest);
  }
  if (l == 0u) { stats[row] = vec2f(peak, own + rest); }
}
