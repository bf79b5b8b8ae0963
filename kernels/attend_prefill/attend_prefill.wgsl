// Causal attention of a chunk of prompt tokens over the rows of one layer and loop: tokens before the chunk and those
// of it.
//
//   o_i = sum_{t <= n + i} p_it v_t
//   p_i = softmax_t(scale (q_i . k_t + q_b,i . b_t))
//   n: tokens before the chunk
//
// Online softmax (attend_rows.wgsl) with a row for each query: the queries of a KV head, [token][query head of the
// group], are taken four at a time by WIDE threads, which share every key and value row and hold their parts of queries
// and sums in registers. There is no barrier. Sequences may be of different lengths (`spans`: tokens before the chunk,
// tokens of it); what a shorter one lacks is neither read nor written.
// Bindings: 0 params, 1 queries f32, 2 keys and 3 values in the layout of caches, 4 output f32, 5 spans, 6 queries of
// the rotary branch f32 and 7 its keys [sequence][token][head, or one for all][component] f32 (any buffers where there
// is no branch).
// Run: lla-sim bench --kernel attend_prefill
enable subgroups;
#storage

#include "attend_prefill_launch.wgsl"
struct Params {
  #include "attend_prefill_params.wgsl"
  spare: u32,
}
#include "attend_prefill_bindings.wgsl"

#include "attend_prefill_query.wgsl"
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
    limit[lane] = span.x + own[lane].x + 1u;
    load_query(lane, id.z * params.queries + own[lane].x, own[lane].y, c);
  }
  for (var k = 0u; k < LANES * VALUE_EACH * UNIT_VECS; k++) { sums[k] = vec4f(0.0); }
  top = vec4f(LOWEST);
  mass = vec4f(0.0);
  let cached_row = params.first_row + id.z * params.kv_heads + id.y;
  let branch_keys_head = select(id.y, 0u, params.branch_heads == 1u);
  // All threads of a subgroup take part in the shuffles: they go as far as the last row of the workgroup.
  let end = span.x + (min(first + rows_each, rows) - 1u) / params.group + 1u;
  for (var t = 0u; t < end; t++) {
    let key_token = token_at(params.keys, cached_row, params.tiles, t);
    let branch_at = ((id.z * params.branch_tokens + t) * params.branch_heads + branch_keys_head) * params.branch_width;
    fold_token(c, key_token, token_at(params.values, cached_row, params.tiles, t), branch_at, vec4u(t) < limit);
  }
  for (var lane = 0u; lane < LANES; lane++) {
    if (first + (l / WIDE) * LANES + lane >= rows) { break; }
    let at = params.output_offset + (id.z * params.queries + own[lane].x) * params.output_row +
        own[lane].y * params.value_width;
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
