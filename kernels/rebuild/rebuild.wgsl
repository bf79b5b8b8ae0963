// Rebuilds K (rotated) or V (plain) of one layer and loop for all cached tokens into f16 rows, x_t = W c_t + mu: the
// materialising path. A row is written in the slot of its latent, in the layout of f16 caches, so that `attend` reads
// it with the same spans. A workgroup is one (TOKENS * WG slots, KV head, sequence).
// Bindings: 0 params, 1 keys (latents), 2 weights [KV head][head width][rank, padded to even] f16 pairs, 3 means [KV
// head][head width] f32, 4 spans (attend_rows.wgsl), 5 positions of pinned tokens u32 [sequence, or sequence and KV
// head][slot], 6 turns (rotary.wgsl), 7 rows (output). Run: lla-sim bench --kernel rebuild
#storage
#include "rotary.wgsl"
#include "rebuild_rows.wgsl"
#include "rebuild_pairs.wgsl"

override WG: u32;
override TOKENS: u32;   // slots of a thread: every WG-th one

const MOST_PAIRS = 64u;
const MOST_TOKENS = 8u;
var<private> pairs_of: array<vec2f, MOST_PAIRS>;   // [pair][token]

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group_id: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) l: u32
) {
  let row = group_id.z * groups.y + group_id.y;
  let latent_row = select(row, group_id.z, params.row_shared == 1u);
  let span = spans[group_id.z];
  let slots = params.pinned + params.ring;
  let head = HeadRows(group_id.y * 2u * params.pairs, params.pairs, params.rank, params.adjacent);
  let position_row = select(group_id.z, row, params.positions_by_head == 1u);
  let first = group_id.x * TOKENS * WG;
  if (!in_use(span, first, TOKENS * WG)) { return; }
  for (var m0 = 0u; m0 < params.pairs; m0 += PAIR_STEP) {
    for (var i = 0u; i < PAIR_STEP * TOKENS; i++) { pairs_of[i] = vec2f(0.0); }
    for (var vec0 = 0u; vec0 < params.keys.units * UNIT_VECS; vec0 += STEP_VECS) {
      workgroupBarrier();
      stage_pairs(l, head, m0, 4u * vec0);
      workgroupBarrier();
      let units = min(STEP_VECS / UNIT_VECS, params.keys.units - vec0 / UNIT_VECS);
      for (var unit = 0u; unit < units * params.once; unit++) {
        var c: array<Unit, MOST_TOKENS>;
        for (var j = 0u; j < TOKENS; j++) {
          c[j] = load_unit(&keys, params.keys,
              token_at(params.keys, latent_row, slots / TILE_TOKENS, min(first + j * WG + l, slots - 1u)),
                  vec0 / UNIT_VECS + unit);
        }
        for (var p = 0u; p < PAIR_STEP; p++) {
          for (var v = 0u; v < UNIT_VECS; v++) {
            let w0 = staged[2u * p * STEP_VECS + unit * UNIT_VECS + v];
            let w1 = staged[(2u * p + 1u) * STEP_VECS + unit * UNIT_VECS + v];
            for (var j = 0u; j < TOKENS; j++) { pairs_of[p * TOKENS + j] += vec2f(dot(w0, c[j][v]), dot(w1, c[j][v])); }
          }
        }
      }
    }
    for (var j = 0u; j < TOKENS; j++) {
      let slot = first + j * WG + l;
      let token = cached(span, position_row, min(slot, slots - 1u));
      for (var p = 0u; p < PAIR_STEP; p++) {
        var x = pairs_of[p * TOKENS + j] + mean_of[p];
        if (params.rotate == 1u) {
          x = rotated(x, turn_at(&turns, params.pairs, token.position, min(m0 + p, params.pairs - 1u)));
        }
        pairs_of[p * TOKENS + j] = x;
      }
      if (slot < slots && token.here) {
        for (var p = 0u; p < PAIR_STEP; p += 2u) {
          store_pairs(row, slot, m0 + p, pairs_of[p * TOKENS + j], pairs_of[(p + 1u) * TOKENS + j]);
        }
      }
    }
    // The next stage overwrites the means.
    workgroupBarrier();
  }
}
