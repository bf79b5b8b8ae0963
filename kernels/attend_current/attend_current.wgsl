// Latent paths, after the value up-projection: adds the mean of the values and folds in the current token's exact key
// and value, from the row's maximum and sum (m, l), which are written again. With s = scale q . k, M = max(m, s):
//
//   y = (2^(m - M) l (o + mu_v) + 2^(s - M) v) / (2^(m - M) l + 2^(s - M))
//
// ABSORBED first subtracts the mean of the keys from the current key, s = scale q . (k - mu_k): absorbed scores of
// cached tokens leave out q . mu_k, which is the same for all of them. A rotary branch adds q_b . k_b to the dot
// product, from places of its own: its key lies in another buffer than the content's, one for all heads or one a KV
// head. One workgroup a row (sequence * query heads + head). Bindings: 0 params, 1 output [row][value width], o in
// place, 2 stats [row] (m, l), 3 value means [KV head][value width], 4 queries, 5 new keys, 6 new values, 7 key means
// [KV head][key width] (any buffer without ABSORBED), 8 branch queries, 9 branch keys (any buffers without a branch).
// Run: lla-sim bench --kernel attend_current
#include "attend_new.wgsl"

override WG: u32;
override ABSORBED: u32;

struct Params {
  current: Current,
  branch_width: u32,   // 0 without
  branch_heads: u32,   // keys of a sequence
  branch_query: u32,   // float of sequence 0, head 0
  branch_query_stride: u32,
  branch_query_head: u32,
  branch_key: u32,
  branch_key_stride: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;
@group(0) @binding(2) var<storage, read_write> stats: array<vec2f>;
@group(0) @binding(3) var<storage, read> value_means: array<f32>;
@group(0) @binding(4) var<storage, read> queries: array<f32>;
@group(0) @binding(5) var<storage, read> new_keys: array<f32>;
@group(0) @binding(6) var<storage, read> new_values: array<f32>;
@group(0) @binding(7) var<storage, read> key_means: array<f32>;
@group(0) @binding(8) var<storage, read> branch_queries: array<f32>;
@group(0) @binding(9) var<storage, read> branch_keys: array<f32>;

var<workgroup> sums: array<f32, WG>;
var<workgroup> cached: vec2f;   // m and l as they come in

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group_id: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) l: u32
) {
  let row = group_id.y * groups.x + group_id.x;
  if (row >= params.current.rows) { return; }
  let place = place_of(params.current, row);
  let width = params.current.value_width;
  var dot = 0.0;
  for (var i = l; i < params.current.key_width; i += WG) {
    var k = new_keys[place.key + i];
    if (ABSORBED == 1u) { k -= key_means[place.kv_head * params.current.key_width + i]; }
    dot += queries[place.query + i] * k;
  }
  let sequence = row / params.current.heads;
  let branch_query = params.branch_query + sequence * params.branch_query_stride +
      (row % params.current.heads) * params.branch_query_head;
  let branch_key = params.branch_key + sequence * params.branch_key_stride +
      select(place.kv_head, 0u, params.branch_heads == 1u) * params.branch_width;
  for (var i = l; i < params.branch_width; i += WG) {
    dot += branch_queries[branch_query + i] * branch_keys[branch_key + i];
  }
  sums[l] = dot;
  if (l == 0u) { cached = stats[row]; }
  workgroupBarrier();
  var score = 0.0;
  for (var i = 0u; i < min(WG, max(params.current.key_width, params.branch_width)); i++) { score += sums[i]; }
  score *= params.current.scale;
  let peak = max(cached.x, score);
  let rest = cached.y * fade(cached.x, peak);
  let share = own_weight(score, peak);
  for (var j = l; j < width; j += WG) {
    let at = row * width + j;
    var y = share * new_values[place.value + j];
    // An empty cache contributes nothing, whatever its products contain.
    if (cached.y > 0.0) { y += rest * (output[at] + value_means[place.kv_head * width + j]); }
    output[at] = y / (rest + share);
  }
  if (l == 0u) { stats[row] = vec2f(peak, rest + share); }
}
