// What loops after the dense ones add to the output of the last dense loop (src/codecs/flashloop.ts):
//
//   o_t = o_2 + m (softmax over the chosen tokens of loop t - s)
//
// s is that softmax in the last dense loop, m the probability that it gives them. BEGIN, in that loop, leaves o_2 - m s
// and m for those after it. The current token is folded in where it is chosen. A workgroup a row (sequence * query
// heads + head).
// Bindings: 0 params, 1 output [row][width], o_2 with BEGIN, o_t else, 2 stats [row] (maximum, sum) of all tokens, with
// BEGIN alone, 3 part [row][width]: attention over the chosen cached tokens, 4 part_stats [row], 5 queries, 6 new_rows:
// new keys and values, 7 chosen (lists of choose_keys.wgsl), 8 base [row][width + 1]. Run: lla-sim bench --kernel
// join_chosen
#include "attend_new.wgsl"

override WG: u32;
override BEGIN: u32;

struct Params {
  current: Current,
  list_words: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;
@group(0) @binding(2) var<storage, read> stats: array<vec2f>;
@group(0) @binding(3) var<storage, read> part: array<f32>;
@group(0) @binding(4) var<storage, read> part_stats: array<vec2f>;
@group(0) @binding(5) var<storage, read> queries: array<f32>;
@group(0) @binding(6) var<storage, read> new_rows: array<f32>;
@group(0) @binding(7) var<storage, read> chosen: array<u32>;
@group(0) @binding(8) var<storage, read_write> base: array<f32>;

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
  let width = params.current.value_width;
  var dot = 0.0;
  for (var i = l; i < width; i += WG) { dot += queries[place.query + i] * new_rows[place.key + i]; }
  sums[l] = dot;
  workgroupBarrier();
  var score = 0.0;
  for (var i = 0u; i < min(WG, width); i++) { score += sums[i]; }
  score *= params.current.scale;
  let cached = part_stats[row];
  var peak = cached.x;
  var share = 0.0;
  if ((chosen[row * params.list_words] & 0x80000000u) != 0u) {
    peak = max(cached.x, score);
    share = own_weight(score, peak);
  }
  let rest = cached.y * fade(cached.x, peak);
  let total = rest + share;
  let at = row * (width + 1u);
  var probability = 0.0;
  if (BEGIN == 1u) {
    probability = total * fade(peak, stats[row].x) / stats[row].y;
    if (l == 0u) { base[at + width] = probability; }
  } else {
    probability = base[at + width];
  }
  for (var j = l; j < width; j += WG) {
    var o = 0.0;
    if (share > 0.0) { o = share * new_rows[place.value + j]; }
    // Without chosen cached tokens their part holds nothing.
    if (cached.y != 0.0) { o += rest * part[row * width + j]; }
    o *= probability / total;
    if (BEGIN == 1u) {
      base[at + j] = output[row * width + j] - o;
    } else {
      output[row * width + j] = base[at + j] + o;
    }
  }
}
