// Attention of a chunk of prompt tokens in several calls, each over other rows of one layer and loop: what a query has
// attended to so far, its output o, largest score a and mass m, is carried from call to call.
//
//   b = max(a, max_t s_t)
//   m' = m 2^{a - b} + sum_t 2^{s_t - b}
//   o' = (m 2^{a - b} o + sum_t 2^{s_t - b} v_t) / m'
//
// With OWN the rows are those of the chunk, and of tokens before it, and a query sees the ones up to its own. Without,
// all queries see all rows: `spans` then says how many there are. The first call has nothing CARRIED. Everything else
// is as in attend_prefill.wgsl.
// Bindings: 0 params, 1 queries f32, 2 keys and 3 values in the layout of caches, 4 output f32, 5 spans, 6 queries of
// the rotary branch f32 and 7 its keys [sequence][token][head, or one for all][component] f32 (any buffers where there
// is no branch), 8 statistics [token, through all sequences][query head] (a in base 2, m). Run: lla-sim bench --kernel
// attend_carried
enable subgroups;
#storage

#include "attend_prefill_launch.wgsl"
override OWN: u32;
override CARRIED: u32;

struct Params {
  #include "attend_prefill_params.wgsl"
  first: u32,           // slot of row 0
}
#include "attend_prefill_bindings.wgsl"
@group(0) @binding(8) var<storage, read_write> statistics: array<vec2f>;

#include "attend_prefill_query.wgsl"
// Floats of the output: the first of a query, which has value_width.
fn output_of(token: u32, head: u32) -> u32 {
  return params.output_offset + token * params.output_row + head * params.value_width;
}
fn statistics_of(token: u32, head: u32) -> u32 { return token * params.kv_heads * params.group + head; }

// m o of a lane: sums as they were left.
fn load_sums(lane: u32, at: u32, mass: f32, c: u32) {
  for (var k = 0u; k < VALUE_EACH; k++) {
    for (var e = 0u; e < UNIT_VECS; e++) {
      let component = (c + WIDE * k) * UNIT + 4u * e;
      var o = vec4f(0.0);
      for (var x = 0u; x < 4u * params.once; x++) {
        if (component + x < params.value_width) { o[x] = output[at + component + x]; }
      }
      sums[(lane * VALUE_EACH + k) * UNIT_VECS + e] = mass * o;
    }
  }
}

// Workgroups: (4 WG / WIDE query rows, KV head, sequence).
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3u, @builtin(local_invocation_index) l: u32) {
  let span = spans[id.z];
  let rows = span.y * params.group;
  let rows_each = LANES * (WG / WIDE);
  let first = id.x * rows_each;
  if (first >= rows) { return; }
  let c = l % WIDE;
  var own: array<vec2u, LANES>;   // token of the chunk and query head of each lane
  var limit: vec4u;               // tokens that it sees
  for (var lane = 0u; lane < LANES; lane++) {
    let row = min(first + (l / WIDE) * LANES + lane, rows - 1u);
    own[lane] = vec2u(row / params.group, id.y * params.group + row % params.group);
    limit[lane] = span.x + OWN * (own[lane].x + 1u);
    load_query(lane, id.z * params.queries + own[lane].x, own[lane].y, c);
  }
  top = vec4f(LOWEST);
  mass = vec4f(0.0);
  for (var k = 0u; k < LANES * VALUE_EACH * UNIT_VECS; k++) { sums[k] = vec4f(0.0); }
  for (var lane = 0u; lane < LANES * CARRIED; lane++) {
    let token = id.z * params.queries + own[lane].x;
    let carried = statistics[statistics_of(token, own[lane].y)];
    top[lane] = carried.x;
    mass[lane] = carried.y;
    load_sums(lane, output_of(token, own[lane].y), carried.y, c);
  }
  let cached_row = params.first_row + id.z * params.kv_heads + id.y;
  let branch_keys_head = select(id.y, 0u, params.branch_heads == 1u);
  // All threads of a subgroup take part in the shuffles: they go as far as the last row of the workgroup.
  let end = span.x + OWN * ((min(first + rows_each, rows) - 1u) / params.group + 1u);
  for (var t = 0u; t < end; t++) {
    let key_token = token_at(params.keys, cached_row, params.tiles, params.first + t);
    let branch_at = ((id.z * params.branch_tokens + t) * params.branch_heads + branch_keys_head) * params.branch_width;
    fold_token(c, key_token, token_at(params.values, cached_row, params.tiles, params.first + t), branch_at,
        vec4u(t) < limit);
  }
  for (var lane = 0u; lane < LANES; lane++) {
    if (first + (l / WIDE) * LANES + lane >= rows) { break; }
    let token = id.z * params.queries + own[lane].x;
    if (c == 0u) { statistics[statistics_of(token, own[lane].y)] = vec2f(top[lane], mass[lane]); }
    let at = output_of(token, own[lane].y);
    for (var k = 0u; k < VALUE_EACH; k++) {
      for (var e = 0u; e < UNIT_VECS; e++) {
        let component = (c + WIDE * k) * UNIT + 4u * e;
        let o = sums[(lane * VALUE_EACH + k) * UNIT_VECS + e] / mass[lane];
        for (var x = 0u; x < 4u * params.once; x++) {
          if (component + x < params.value_width) { output[at + component + x] = o[x]; }
        }
      }
    }
  }
}
