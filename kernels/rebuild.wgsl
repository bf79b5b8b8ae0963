// Rebuilds K (rotated half-split, key layout) or V (plain, value layout) of one layer and loop for the whole context into f16 rows:
// the materialising path, x_t = W c_t + mu.
// A workgroup is one (256 tokens, KV head, sequence); a thread takes two tokens.
// Bindings: 0 params, 1 keys (latents, key layout), 2 weights, 3 means, 4 positions [capacity] u32, 5 centres, 6 offsets, 7 rows (output).
// Run: lla-sim bench --kernel rebuild
#element
#include "cache_layout.wgsl"
#include "rotary.wgsl"
#include "rebuild_pairs.wgsl"

override ROTATE: u32;        // 1: rope, key layout; 0: plain, value layout
override ROW_SHARED: u32;    // 1: all KV heads of a sequence read the same latent
const WG = 128u;

struct Params { context: u32, capacity: u32, once: u32, key_pairs: u32 }   // once: 1, see attend_fold.wgsl
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> keys: array<Pair>;
@group(0) @binding(2) var<storage, read> weights: array<u32>;
@group(0) @binding(3) var<storage, read> means: array<f32>;
@group(0) @binding(4) var<storage, read> positions: array<u32>;
@group(0) @binding(5) var<storage, read> centres: array<vec2f>;
@group(0) @binding(6) var<storage, read> offsets: array<vec2f>;
@group(0) @binding(7) var<storage, read_write> rows: array<u32>;

fn store_row(row: u32, token: u32, pair: u32, value: vec2f) {
  if (ROTATE == 1u) {
    rows[key_index(row, token, pair, params.capacity, HEAD_PAIRS)] = pack2x16float(value);
  } else {
    rows[value_index(row, token, pair, params.capacity, HEAD_PAIRS)] = pack2x16float(value);
  }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) l: u32) {
  let row = group_id.z * groups.y + group_id.y;
  let latent_row = select(row, group_id.z, ROW_SHARED == 1u);
  let token_a = group_id.x * 2u * WG + l;
  let token_b = token_a + WG;
  let last = params.context - 1u;
  let key_a = key_index(latent_row, min(token_a, last), 0u, params.capacity, params.key_pairs);
  let key_b = key_index(latent_row, min(token_b, last), 0u, params.capacity, params.key_pairs);
  let position_a = positions[min(token_a, last)];
  let position_b = positions[min(token_b, last)];
  for (var m0 = 0u; m0 < HEAD_PAIRS * params.once; m0 += PAIR_STEP) {
    var x = rebuild_pairs(l, group_id.y * 2u * HEAD_PAIRS, m0, key_a, key_b);
    if (ROTATE == 1u) {
      for (var p = 0u; p < PAIR_STEP; p++) {
        let m = min(m0 + p, HEAD_PAIRS - 1u);
        x[p] = rotate_pair(x[p], turn_at(position_a, m), turn_at(position_b, m));
      }
    }
    // Stored pairs are neighbours in a row: (m, m + 1) and (m + half, m + half + 1).
    for (var p = 0u; p < PAIR_STEP; p += 2u) {
      let pair = (m0 + p) / 2u;
      if (m0 + p < HEAD_PAIRS && token_a <= last) {
        store_row(row, token_a, pair, vec2f(x[p].x, x[p + 1u].x));
        store_row(row, token_a, pair + HEAD_PAIRS / 2u, vec2f(x[p].y, x[p + 1u].y));
      }
      if (m0 + p < HEAD_PAIRS && token_b <= last) {
        store_row(row, token_b, pair, vec2f(x[p].z, x[p + 1u].z));
        store_row(row, token_b, pair + HEAD_PAIRS / 2u, vec2f(x[p].w, x[p + 1u].w));
      }
    }
  }
}
