// Split-KV decode attention of one new token over cached rows that are used as they lie: full K and V, or latents with an
// absorbed query. One workgroup a (split, KV head, sequence); one thread a token for scores, one a value pair for the sum.
//
//   s_t = scale (q . k_t + q_b . b_t)        q: first key_pairs pairs of a query, q_b: the rest; b: the rotary branch
//
// Bindings: 0 params, 1 queries [sequence][query head][2 (key_pairs + branch_pairs)], 2 keys, 3 values, 4 partials, 5 branch
// (key layout; rows of their own, or one a sequence with branch_shared; any buffer where branch_pairs is 0).
// Run: lla-sim bench --kernel attend
#element
#include "attend_fold.wgsl"

override CHUNK: u32;           // query pairs held in workgroup memory at a time
override QUERY_ONE: u32;       // CHUNK if LANES is 1, else 1
override QUERY_MANY: u32;      // 2 CHUNK QUADS if LANES is more, else 1

@group(0) @binding(1) var<storage, read> queries: array<f32>;
@group(0) @binding(5) var<storage, read> branch: array<Pair>;

var<workgroup> query_one: array<vec2f, QUERY_ONE>;     // [pair]
var<workgroup> query_many: array<vec4f, QUERY_MANY>;   // [pair][component of the pair][quad]
var<private> sum: array<vec4f, 4>;

fn stage_queries(l: u32, place: Place, head0: u32, from_pair: u32, to_pair: u32) {
  let width = 2u * (params.key_pairs + params.branch_pairs);
  let pairs = to_pair - from_pair;
  if (LANES == 1u) {
    let at = (place.first_head + head0) * width + 2u * from_pair;
    for (var i = l; i < pairs; i += WG) { query_one[i] = vec2f(queries[at + 2u * i], queries[at + 2u * i + 1u]); }
  } else {
    for (var i = l; i < pairs * 2u * QUADS; i += WG) {
      let quad = i % QUADS;
      let component = 2u * from_pair + i / QUADS;
      var q = vec4f(0.0);
      for (var e = 0u; e < 4u; e++) {
        let head = head0 + quad * 4u + e;
        if (head < params.group) { q[e] = queries[(place.first_head + head) * width + component]; }
      }
      query_many[i] = q;
    }
  }
}

fn accumulate(i: u32, k: vec2f) {
  if (LANES == 1u) {
    let q = query_one[i];
    sum[0].x += q.x * k.x + q.y * k.y;
  } else {
    for (var quad = 0u; quad < QUADS; quad++) {
      sum[quad] += query_many[2u * i * QUADS + quad] * k.x + query_many[(2u * i + 1u) * QUADS + quad] * k.y;
    }
  }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) l: u32) {
  let place = place_of(group_id, groups);
  let branch_row = select(group_id.z * groups.y + group_id.y, group_id.z, params.branch_shared == 1u);
  let pairs = params.key_pairs + params.branch_pairs;
  for (var head0 = 0u; head0 < params.group; head0 += LANES) {
    start_lanes();
    for (var first = place.begin; first < place.end; first += TILE) {
      let count = min(TILE, place.end - first);
      let token = first + l;   // TILE is WG: one token a thread
      let key_at = key_index(place.row, token, 0u, params.capacity, params.key_pairs);
      let branch_at = key_index(branch_row, token, 0u, params.capacity, params.branch_pairs);
      for (var q = 0u; q < QUADS; q++) { sum[q] = vec4f(0.0); }
      for (var from_pair = 0u; from_pair < pairs; from_pair += CHUNK) {
        let to_pair = min(from_pair + CHUNK, pairs);
        if (CHUNK < pairs || first == place.begin) {
          workgroupBarrier();
          stage_queries(l, place, head0, from_pair, to_pair);
          workgroupBarrier();
        }
        if (l < count) {
          for (var i = from_pair; i < min(to_pair, params.key_pairs); i++) { accumulate(i - from_pair, load_pair(keys[key_at + i * TILE_TOKENS])); }
          for (var i = max(from_pair, params.key_pairs); i < to_pair; i++) { accumulate(i - from_pair, load_pair(branch[branch_at + (i - params.key_pairs) * TILE_TOKENS])); }
        }
      }
      // The tile before may still be read in add_values.
      workgroupBarrier();
      if (l < count) {
        for (var lane = 0u; lane < LANES; lane++) { score[l * LANES + lane] = params.scale * sum[lane / 4u][lane % 4u]; }
      }
      fold_tile(l, place, head0, first, count);
    }
    finish_lanes(l, place, head0);
  }
}
