// Folds the split partials of a query into its output: with M = max m_s,  out = sum_s 2^(m_s - M) o_s / sum_s 2^(m_s - M) l_s.
// One workgroup a row (sequence * query heads + head); any number of splits, some of them empty (l = 0).
// Bindings: 0 params, 1 partials [row][split][width + 2] as attend_fold.wgsl writes them, 2 output [row][width].
// Run: lla-sim bench --kernel attend_merge
override WG: u32;

struct Params { splits: u32, width: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> partials: array<f32>;
@group(0) @binding(2) var<storage, read_write> output: array<f32>;

const LOWEST = -3.0e38;
var<workgroup> tops: array<f32, WG>;
var<workgroup> sums: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(local_invocation_index) l: u32) {
  let stride = params.width + 2u;
  let base = group_id.x * params.splits * stride;
  var top = LOWEST;
  var sum = 0.0;
  for (var s = l; s < params.splits; s += WG) {
    let m = partials[base + s * stride + params.width];
    let next = max(top, m);
    sum = sum * exp2(max(top - next, -200.0)) + partials[base + s * stride + params.width + 1u] * exp2(max(m - next, -200.0));
    top = next;
  }
  tops[l] = top;
  sums[l] = sum;
  workgroupBarrier();
  var peak = LOWEST;
  for (var i = 0u; i < min(WG, params.splits); i++) { peak = max(peak, tops[i]); }
  var total = 0.0;
  for (var i = 0u; i < min(WG, params.splits); i++) { total += sums[i] * exp2(max(tops[i] - peak, -200.0)); }
  for (var j = l; j < params.width; j += WG) {
    var o = 0.0;
    for (var s = 0u; s < params.splits; s++) {
      let at = base + s * stride;
      o += partials[at + j] * exp2(max(partials[at + params.width] - peak, -200.0));
    }
    output[group_id.x * params.width + j] = o / total;
  }
}
