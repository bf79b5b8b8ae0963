// Rebuilds K (rotated) or V (plain) of one layer and loop for all cached tokens into f16 rows, x_t = W c_t + mu: the materialising
// path. A row is written in the slot of its latent, in the layout of f16 caches, so that `attend` reads it with the same spans.
// A workgroup is one (TOKENS * WG slots, KV head, sequence).
// Bindings: 0 params, 1 keys (latents), 2 weights [KV head][head width][rank, padded to even] f16 pairs, 3 means [KV head][head width]
// f32, 4 spans (attend_fold.wgsl), 5 positions of pinned tokens u32 [sequence, or sequence and KV head][pinned], 6 turns (rotary.wgsl),
// 7 rows (output). Run: lla-sim bench --kernel rebuild
#storage
#include "rotary.wgsl"
#include "rebuild_pairs.wgsl"

override WG: u32;
override TOKENS: u32;   // slots of a thread: every WG-th one

struct Params {
  pinned: u32,             // slots of a row before its ring
  ring: u32,               // slots of the ring
  once: u32,               // 1, see attend_fold.wgsl
  row_shared: u32,         // 1: all KV heads of a sequence read the same latent
  rank: u32,
  pairs: u32,              // half the head width
  adjacent: u32,           // 1: pairs are neighbours
  rotate: u32,             // 1: pairs are rotated by their positions
  positions_by_head: u32,
  spare0: u32,
  spare1: u32,
  spare2: u32,
  keys: CachedRow,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> keys: array<vec4u>;
@group(0) @binding(2) var<storage, read> weights: array<u32>;
@group(0) @binding(3) var<storage, read> means: array<f32>;
@group(0) @binding(4) var<storage, read> spans: array<vec4u>;
@group(0) @binding(5) var<storage, read> positions: array<u32>;
@group(0) @binding(6) var<storage, read> turns: array<vec2f>;
@group(0) @binding(7) var<storage, read_write> rows: array<u32>;

const MOST_PAIRS = 64u;
const MOST_TOKENS = 8u;
var<private> pairs_of: array<vec2f, MOST_PAIRS>;   // [pair][token]

// Position of the token in a slot, and whether there is one.
struct Cached { position: u32, here: bool }

fn cached(span: vec4u, position_row: u32, slot: u32) -> Cached {
  if (slot < params.pinned) {
    let here = slot < span.x;
    return Cached(positions[select(0u, position_row * params.pinned + slot, here)], here);
  }
  // Ring token i has position y + i and lies in slot pinned + (y + i) mod ring.
  let ring = max(params.ring, 1u);
  let i = (slot - params.pinned + ring - span.y % ring) % ring;
  return Cached(span.y + i, slot < params.pinned + params.ring && i < span.z);
}

// Whether slots [first, first + count) may hold a token.
fn in_use(span: vec4u, first: u32, count: u32) -> bool {
  let begin = params.pinned + span.y % max(params.ring, 1u);
  let wraps = begin + span.z > params.pinned + params.ring;
  return first < span.x || wraps || (span.z > 0u && first < begin + span.z && first + count > begin);
}

// Word w of a slot's f16 row: see cache_layout.wgsl. Rows of even width have no tails.
fn store_word(row: u32, slot: u32, w: u32, value: vec2f) {
  let words = params.pairs;
  let whole = words / 4u * 4u;
  let t = slot % TILE_TOKENS;
  let tile = (row * ((params.pinned + params.ring) / TILE_TOKENS) + slot / TILE_TOKENS) * TILE_TOKENS * words;
  rows[tile + select(TILE_TOKENS * w + t, t * whole + w, w < whole)] = pack2x16float(value);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) l: u32) {
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
          c[j] = load_unit(&keys, params.keys, token_at(params.keys, latent_row, slots / TILE_TOKENS, min(first + j * WG + l, slots - 1u)), vec0 / UNIT_VECS + unit);
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
        if (params.rotate == 1u) { x = rotated(x, turn_at(&turns, params.pairs, token.position, min(m0 + p, params.pairs - 1u))); }
        pairs_of[p * TOKENS + j] = x;
      }
      if (slot < slots && token.here) {
        for (var p = 0u; p < PAIR_STEP; p += 2u) {
          let a = pairs_of[p * TOKENS + j];
          let b = pairs_of[(p + 1u) * TOKENS + j];
          let m = m0 + p;
          if (params.adjacent == 1u) {
            if (m < params.pairs) { store_word(row, slot, m, a); }
            if (m + 1u < params.pairs) { store_word(row, slot, m + 1u, b); }
          } else if (m < params.pairs) {
            // Half the head width is even here.
            store_word(row, slot, m / 2u, vec2f(a.x, b.x));
            store_word(row, slot, (m + params.pairs) / 2u, vec2f(a.y, b.y));
          }
        }
      }
    }
    // The next stage overwrites the means.
    workgroupBarrier();
  }
}
