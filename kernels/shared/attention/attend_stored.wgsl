// Attention over rows whose storage comes before: the rest of attend and attend_residual.
// Bindings: those of attend.wgsl. Run: lla-sim bench --kernel attend
override KEY_EACH: u32;        // units of a key row that a thread takes
override BRANCH_EACH: u32;     // units of a branch row that a thread takes, 0 without a branch

@group(0) @binding(1) var<storage, read> queries: array<f32>;
@group(0) @binding(7) var<storage, read> branch: array<vec4u>;

// scratch: parts of the scores, [lane][token][thread of the row].
const MOST_QUERY_VECS = 192u;
// [lane][unit][vec], LANES * (KEY_EACH + BRANCH_EACH) * UNIT_VECS of them
var<private> query: array<vec4f, MOST_QUERY_VECS>;

// Components [first, first + 4) of a row of `width` components in `queries`; zero past its end.
fn query_vec(at: u32, first: u32, width: u32) -> vec4f {
  var q = vec4f(0.0);
  for (var e = 0u; e < 4u * params.once; e++) {
    if (first + e < width) { q[e] = queries[at + first + e]; }
  }
  return q;
}

fn load_queries(l: u32, place: Place, key_width: u32, branch_width: u32) {
  let c = l % WIDE;
  let first_query = select(0u, params.query_sets, place.pinned);
  for (var lane = 0u; lane < LANES; lane++) {
    let at = (first_query + place.first_head + min(lane, place.lanes - 1u)) * (key_width + branch_width);
    for (var k = 0u; k < (KEY_EACH + BRANCH_EACH); k++) {
      for (var e = 0u; e < UNIT_VECS; e++) {
        let to = (lane * (KEY_EACH + BRANCH_EACH) + k) * UNIT_VECS + e;
        if (k < KEY_EACH) {
          query[to] = query_vec(at, (c + WIDE * k) * UNIT + 4u * e, key_width);
        } else {
          query[to] = query_vec(at + key_width, (c + WIDE * (k - KEY_EACH)) * UNIT + 4u * e, branch_width);
        }
      }
    }
  }
}

#include "row_sum.wgsl"

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group_id: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) l: u32
) {
  let place = place_of(group_id, groups);
  let branch_row = select(place.kv_row, place.sequence, params.branch_shared == 1u);
  let c = l % WIDE;
  let rows = STREAM / WIDE;   // of a stream in a step
  let tokens = stream_tokens(l, place, rows);
  start_rows();
  load_queries(l, place, params.key_width, params.branch_width);
  // All threads of a subgroup take part in the shuffles, those of shorter streams too.
  let steps = (stream_tokens(0u, place, rows).y - stream_tokens(0u, place, rows).x + rows - 1u) / rows;
  for (var step = 0u; step < steps; step++) {
    let own = tokens.x + step * rows + (l % STREAM) / WIDE;
    let i = min(own, place.end - 1u);
    let slot = slot_of(place, i);
    let token = token_at(params.keys, place.row, tiles_of_row(), slot);
    var dots: array<vec4f, MOST_LANES>;
    for (var lane = 0u; lane < LANES; lane++) { dots[lane] = vec4f(0.0); }
    for (var k = 0u; k < KEY_EACH; k++) {
      let x = load_unit(&keys, params.keys, token, unit_of(params.keys, c + WIDE * k));
      for (var lane = 0u; lane < LANES; lane++) {
        for (var e = 0u; e < UNIT_VECS; e++) {
          dots[lane] = fma(query[(lane * (KEY_EACH + BRANCH_EACH) + k) * UNIT_VECS + e], x[e], dots[lane]);
        }
      }
    }
    if (BRANCH_EACH > 0u) {
      let branch_token = token_at(params.branch, branch_row, tiles_of_row(), slot);
      for (var k = 0u; k < BRANCH_EACH; k++) {
        let x = load_unit(&branch, params.branch, branch_token, unit_of(params.branch, c + WIDE * k));
        for (var lane = 0u; lane < LANES; lane++) {
          for (var e = 0u; e < UNIT_VECS; e++) {
            dots[lane] = fma(query[(lane * (KEY_EACH + BRANCH_EACH) + KEY_EACH + k) * UNIT_VECS + e], x[e], dots[lane]);
          }
        }
      }
    }
    var s = vec4f(0.0);
    for (var lane = 0u; lane < LANES; lane++) { s[lane] = dot(dots[lane], vec4f(1.0)); }
    fold_row(l, place, i, select(vec4f(LOWEST), params.scale * row_sum(s), own < tokens.y));
  }
  finish_rows(l, place);
}
