// Split-KV decode attention over latents, with K rebuilt and rotated in registers; V stays latent.
//
//   k_t = W c_t + mu    s_t = scale q . R(position_t) k_t    o = sum_t p_t c'_t    (c: key latent, c': value latent)
//
// RoPE half-split: pair m is (m, m + HEAD_PAIRS); q comes rotated. Rows of W are staged in workgroup memory, PAIR_STEP pairs
// at a time; a thread rebuilds two tokens, so that a staged weight serves both. K is rebuilt once for all heads of the group.
// Bindings: 0 params, 1 queries [sequence][query head][2 HEAD_PAIRS], 2 keys (latents, key layout), 3 values (latents), 4 partials,
// 5 weights [KV head][2 HEAD_PAIRS][key_pairs] f16 pairs, 6 means [KV head][2 HEAD_PAIRS] f32, 7 positions u32
// [sequence or one][KV head or one][capacity], 8 centres and 9 offsets (rotary.wgsl).
// Run: lla-sim bench --kernel attend_rebuild
#element
#include "attend_fold.wgsl"
#include "rotary.wgsl"
#include "rebuild_pairs.wgsl"

override POSITION_SEQUENCE: u32;    // stride of `positions` over sequences, 0 if they share
override POSITION_HEAD: u32;        // stride over KV heads, 0 if they share

@group(0) @binding(1) var<storage, read> queries: array<f32>;
@group(0) @binding(5) var<storage, read> weights: array<u32>;
@group(0) @binding(6) var<storage, read> means: array<f32>;
@group(0) @binding(7) var<storage, read> positions: array<u32>;
@group(0) @binding(8) var<storage, read> centres: array<vec2f>;
@group(0) @binding(9) var<storage, read> offsets: array<vec2f>;

// Adds q . R(position) k of the step's pairs to the scores of this thread's tokens, l and l + WG. The loop over lanes
// must not be unrolled.
fn add_scores(l: u32, place: Place, head0: u32, m0: u32, rotated: array<vec4f, PAIR_STEP>) {
  for (var lane = 0u; lane < min(LANES, params.group - head0); lane++) {
    let at = (place.first_head + head0 + lane) * 2u * HEAD_PAIRS + m0;
    var sums = vec2f(0.0);
    for (var p = 0u; p < PAIR_STEP; p++) {
      let m = min(p, HEAD_PAIRS - 1u - m0);   // pairs past the end are zero
      sums += queries[at + m] * rotated[p].xz + queries[at + m + HEAD_PAIRS] * rotated[p].yw;
    }
    score[l * LANES + lane] += params.scale * sums.x;
    score[(l + WG) * LANES + lane] += params.scale * sums.y;
  }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) l: u32) {
  let place = place_of(group_id, groups);
  let head_row = group_id.y * 2u * HEAD_PAIRS;
  let position_base = group_id.z * POSITION_SEQUENCE + group_id.y * POSITION_HEAD;
  for (var head0 = 0u; head0 < params.group; head0 += LANES) {
    start_lanes();
    for (var first = place.begin; first < place.end; first += TILE) {
      let count = min(TILE, place.end - first);   // TILE is 2 WG
      // Threads past the end repeat the last token; what they compute is not stored.
      let token_a = min(first + l, place.end - 1u);
      let token_b = min(first + l + WG, place.end - 1u);
      let key_a = key_index(place.row, token_a, 0u, params.capacity, params.key_pairs);
      let key_b = key_index(place.row, token_b, 0u, params.capacity, params.key_pairs);
      let position_a = positions[position_base + token_a];
      let position_b = positions[position_base + token_b];
      // The tile before may still be read in add_values.
      workgroupBarrier();
      for (var i = l; i < TILE * LANES; i += WG) { score[i] = 0.0; }
      for (var m0 = 0u; m0 < HEAD_PAIRS * params.once; m0 += PAIR_STEP) {
        var k = rebuild_pairs(l, head_row, m0, key_a, key_b);
        for (var p = 0u; p < PAIR_STEP; p++) {
          let m = min(m0 + p, HEAD_PAIRS - 1u);
          k[p] = select(vec4f(0.0), rotate_pair(k[p], turn_at(position_a, m), turn_at(position_b, m)), m0 + p < HEAD_PAIRS);
        }
        add_scores(l, place, head0, m0, k);
      }
      fold_tile(l, place, head0, first, count);
    }
    finish_lanes(l, place, head0);
  }
}
