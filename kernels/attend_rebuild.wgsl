// Split-KV decode attention over latents, with K rebuilt and rotated in registers; V stays latent.
//
//   k_t = W c_t + mu    s_t = scale q . R(position_t) k_t    o = sum_t p_t c'_t    (c: key latent, c': value latent)
//
// q comes rotated. WIDE threads share TOKENS tokens, and each holds its part of their latents in registers. Rebuilding, rotating and
// the product with q are linear, so each thread does all three for its part, and only scores are added up over the threads. K is
// rebuilt once for the LANES query heads of a workgroup.
// Bindings: 0 params, 1 queries [sequence][query head][head width] f32, 2 keys (latents), 3 values (latents), 4 partials, 5 spans,
// 6 scores, 7 positions of pinned tokens u32 [sequence, or sequence and KV head][pinned], 8 weights [KV head][head width][rank, padded
// to even] f16 pairs, 9 means [KV head][head width] f32, 10 turns (rotary.wgsl).
// Run: lla-sim bench --kernel attend_rebuild
#include "attend_fold.wgsl"
#include "rotary.wgsl"
#include "rebuild_pairs.wgsl"

override KEY_EACH: u32;   // units of a latent that a thread takes at a time
override TOKENS: u32;     // tokens of a thread, even: every (WG / WIDE)-th one of a tile of TOKENS * WG / WIDE
override TURNS: u32;      // PAIR_STEP * TILE / 2

@group(0) @binding(1) var<storage, read> queries: array<f32>;
@group(0) @binding(7) var<storage, read> positions: array<u32>;
@group(0) @binding(8) var<storage, read> weights: array<u32>;
@group(0) @binding(9) var<storage, read> means: array<f32>;
@group(0) @binding(10) var<storage, read> turns: array<vec2f>;

// What the shared params say of this kernel.
fn head_pairs() -> u32 { return params.spare0; }
fn adjacent_pairs() -> u32 { return params.spare1; }
fn positions_by_head() -> bool { return params.spare2 == 1u; }

const MOST_LATENT_VECS = 128u;
const MOST_TOKENS = 32u;
const MOST_UNIT_VECS = 32u;
var<workgroup> turn_of: array<vec4f, TURNS>;                     // [pair][two tokens of a thread][row]: (cos, sin) of both
var<workgroup> query_of: array<vec2f, PAIR_STEP * LANES>;        // [pair][lane]
// scratch: parts of the scores, [lane][token][thread of the row].
var<private> latent: array<vec4f, MOST_LATENT_VECS>;             // [token][unit][vec]
var<private> parts: array<f32, MOST_TOKENS * MOST_LANES>;        // [lane][token]

fn rows() -> u32 { return WG / WIDE; }

fn score_of(place: Place, lane: u32, i: u32) -> f32 {
  var s = 0.0;
  for (var k = 0u; k < WIDE * params.once; k++) { s += scratch[(lane * TILE + i) * WIDE + k]; }
  return params.scale * s;
}

fn position_of(place: Place, i: u32) -> u32 {
  if (!place.pinned) { return place.position + i; }
  return positions[select(place.sequence, place.kv_row, positions_by_head()) * params.pinned + i];
}

fn stage_turns(l: u32, place: Place, first: u32, m0: u32) {
  let last = place.end - 1u;
  for (var i = l; i < TURNS; i += WG) {
    let t = first + (i / rows()) % (TOKENS / 2u) * 2u * rows() + i % rows();
    let m = min(m0 + i / (TILE / 2u), head_pairs() - 1u);
    turn_of[i] = vec4f(
      turn_at(&turns, head_pairs(), position_of(place, min(t, last)), m),
      turn_at(&turns, head_pairs(), position_of(place, min(t + rows(), last)), m));
  }
}

fn stage_queries(l: u32, place: Place, m0: u32) {
  for (var i = l; i < PAIR_STEP * LANES; i += WG) {
    let at = (place.first_head + min(i % LANES, place.lanes - 1u)) * 2u * head_pairs();
    let pair = at + pair_rows(min(m0 + i / LANES, head_pairs() - 1u), head_pairs(), adjacent_pairs());
    query_of[i] = vec2f(queries[pair.x], queries[pair.y]);
  }
}

// Takes units unit0 + c + WIDE k of the thread's tokens. Registers move up one token at a time: an index that is no constant
// would put them into memory.
fn load_latents(place: Place, first: u32, row: u32, c: u32, unit0: u32) {
  const vecs = UNIT_VECS;
  for (var j = 0u; j < TOKENS * params.once; j++) {
    for (var i = 0u; i < (TOKENS - 1u) * KEY_EACH * vecs; i++) { latent[i] = latent[i + KEY_EACH * vecs]; }
    let token = token_at(params.keys, place.row, tiles_of_row(), slot_of(place, min(first + j * rows() + row, place.end - 1u)));
    for (var k = 0u; k < KEY_EACH; k++) {
      let unit = unit0 + c + WIDE * k;
      let x = load_unit(&keys, params.keys, token, min(unit, params.keys.units - 1u));
      for (var v = 0u; v < vecs; v++) { latent[((TOKENS - 1u) * KEY_EACH + k) * vecs + v] = x[v]; }
    }
  }
}

// The thread's part of pair p of token j: of W c + mu.
fn rebuilt(j: u32, w: array<vec4f, 2u * MOST_UNIT_VECS>, mean: vec2f) -> vec2f {
  var x = vec4f(0.0);
  var y = vec4f(0.0);
  for (var k = 0u; k < KEY_EACH * UNIT_VECS; k++) {
    x = fma(w[k], latent[j * KEY_EACH * UNIT_VECS + k], x);
    y = fma(w[MOST_UNIT_VECS + k], latent[j * KEY_EACH * UNIT_VECS + k], y);
  }
  return mean + vec2f((x.x + x.y) + (x.z + x.w), (y.x + y.y) + (y.z + y.w));
}

// Adds the thread's part of the scores: of PAIR_STEP pairs and the units that it holds.
fn add_pairs(row: u32, c: u32, with_mean: bool) {
  for (var p = 0u; p < PAIR_STEP * params.once; p++) {
    var w: array<vec4f, 2u * MOST_UNIT_VECS>;
    for (var k = 0u; k < KEY_EACH; k++) {
      for (var v = 0u; v < UNIT_VECS; v++) {
        let at = 2u * p * STEP_VECS + (c + WIDE * k) * UNIT_VECS + v;
        w[k * UNIT_VECS + v] = staged[at];
        w[MOST_UNIT_VECS + k * UNIT_VECS + v] = staged[at + STEP_VECS];
      }
    }
    let mean = select(vec2f(0.0), mean_of[p], with_mean);
    var q: array<vec2f, MOST_LANES>;
    for (var lane = 0u; lane < LANES; lane++) { q[lane] = query_of[p * LANES + lane]; }
    for (var j = 0u; j < TOKENS; j += 2u) {
      let turn = turn_of[(p * (TOKENS / 2u) + j / 2u) * rows() + row];
      let a = rotated(rebuilt(j, w, mean), turn.xy);
      let b = rotated(rebuilt(j + 1u, w, mean), turn.zw);
      for (var lane = 0u; lane < LANES; lane++) {
        parts[lane * TOKENS + j] = fma(q[lane].x, a.x, fma(q[lane].y, a.y, parts[lane * TOKENS + j]));
        parts[lane * TOKENS + j + 1u] = fma(q[lane].x, b.x, fma(q[lane].y, b.y, parts[lane * TOKENS + j + 1u]));
      }
    }
  }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) l: u32) {
  let place = place_of(group_id, groups);
  let head = HeadRows((group_id.y / params.lane_groups) * 2u * head_pairs(), head_pairs(), params.key_width, adjacent_pairs());
  let c = l % WIDE;
  let row = l / WIDE;
  start_lanes();
  for (var first = place.begin; first < place.end; first += TILE) {
    for (var i = 0u; i < TOKENS * LANES; i++) { parts[i] = 0.0; }
    for (var unit0 = 0u; unit0 < params.keys.units; unit0 += WIDE * KEY_EACH) {
      load_latents(place, first, row, c, unit0);
      for (var m0 = 0u; m0 < head_pairs(); m0 += PAIR_STEP) {
        workgroupBarrier();
        stage_pairs(l, head, m0, unit0 * UNIT);
        stage_turns(l, place, first, m0);
        stage_queries(l, place, m0);
        workgroupBarrier();
        add_pairs(row, c, unit0 == 0u && c == 0u);
      }
    }
    for (var lane = 0u; lane < LANES; lane++) {
      for (var j = 0u; j < TOKENS; j++) { scratch[(lane * TILE + j * rows() + row) * WIDE + c] = parts[lane * TOKENS + j]; }
    }
    workgroupBarrier();
    fold_tile(l, place, first, min(TILE, place.end - first));
  }
  finish_lanes(l, place);
}
