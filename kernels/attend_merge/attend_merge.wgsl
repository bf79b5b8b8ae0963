// Folds the split partials of a query into its output row and the row's maximum and sum. With M = max m_s:
//
//   l = sum_s 2^(m_s - M) l_s,   o = sum_s 2^(m_s - M) o_s / l
//
// CURRENT also folds in the current token, which no cache holds: one more split with m = scale q . k, l = 1 and o = v.
// One workgroup a row (sequence * query heads + head); any number of splits, some of them empty (l = 0). Without any
// token o and l are 0.
// Bindings: 0 params, 1 partials [row][split][width + 2] as attend_rows.wgsl writes them, 2 output [row][width], 3
// stats [row] (m, l), 4 queries, 5 new keys, 6 new values (any buffers without CURRENT). Run: lla-sim bench --kernel
// attend_merge
#include "attend_new.wgsl"

override WG: u32;
override CURRENT: u32;

struct Params {
  current: Current,
  splits: u32,
  width: u32,
  first_row: u32,   // where the rows of output and stats begin
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> partials: array<f32>;
@group(0) @binding(2) var<storage, read_write> output: array<f32>;
@group(0) @binding(3) var<storage, read_write> stats: array<vec2f>;
@group(0) @binding(4) var<storage, read> queries: array<f32>;
@group(0) @binding(5) var<storage, read> new_keys: array<f32>;
@group(0) @binding(6) var<storage, read> new_values: array<f32>;

var<workgroup> tops: array<f32, WG>;
var<workgroup> sums: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group_id: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) l: u32
) {
  let row = group_id.y * groups.x + group_id.x;
  if (row >= params.current.rows) { return; }
  let place = place_of(params.current, row);
  let stride = params.width + 2u;
  let base = row * params.splits * stride;
  var top = LOWEST;
  var sum = 0.0;
  for (var s = l; s < params.splits; s += WG) {
    let m = partials[base + s * stride + params.width];
    let next = max(top, m);
    sum = sum * fade(top, next) + partials[base + s * stride + params.width + 1u] * fade(m, next);
    top = next;
  }
  tops[l] = top;
  sums[l] = sum;
  workgroupBarrier();
  var peak = LOWEST;
  for (var i = 0u; i < min(WG, params.splits); i++) { peak = max(peak, tops[i]); }
  var total = 0.0;
  for (var i = 0u; i < min(WG, params.splits); i++) { total += sums[i] * fade(tops[i], peak); }
  var share = 0.0;
  if (CURRENT == 1u) {
    workgroupBarrier();
    var dot = 0.0;
    for (var i = l; i < params.current.key_width; i += WG) {
      dot += queries[place.query + i] * new_keys[place.key + i];
    }
    sums[l] = dot;
    workgroupBarrier();
    var score = 0.0;
    for (var i = 0u; i < min(WG, params.current.key_width); i++) { score += sums[i]; }
    score *= params.current.scale;
    let next = max(peak, score);
    share = own_weight(score, next);
    total = total * fade(peak, next) + share;
    peak = next;
  }
  for (var j0 = 0u; j0 < params.width; j0 += WG) {
    let j = j0 + l;
    var o = 0.0;
    for (var s0 = 0u; s0 < params.splits; s0 += WG) {
      // Shares of up to WG splits at a time; made once where that is all of them.
      if (j0 == 0u || params.splits > WG) {
        workgroupBarrier();
        sums[l] = 0.0;
        if (s0 + l < params.splits) {
          let at = base + (s0 + l) * stride + params.width;
          if (partials[at + 1u] > 0.0) { sums[l] = fade(partials[at], peak); }
        }
        workgroupBarrier();
      }
      if (j < params.width) {
        for (var s = s0; s < min(params.splits, s0 + WG); s++) {
          // What an empty split holds is not looked at.
          if (sums[s - s0] > 0.0) { o += partials[base + s * stride + j] * sums[s - s0]; }
        }
      }
    }
    if (j < params.width) {
      if (CURRENT == 1u) { o += share * new_values[place.value + j]; }
      // NaN must stay to be seen: only a sum that is 0 is taken for an empty row.
      let out = (params.first_row + row) * params.width + j;
      if (total == 0.0) { output[out] = 0.0; } else { output[out] = o / total; }
    }
  }
  if (l == 0u) { stats[params.first_row + row] = vec2f(peak, total); }
}
