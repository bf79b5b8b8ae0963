// Split-KV decode attention over latents, with K rebuilt and rotated in registers; V stays latent.
//
//   k_t = W c_t + mu    s_t = scale q . R(position_t) k_t    o = sum_t p_t c'_t    (c: key latent, c': value latent)
//
// q comes rotated. WIDE threads share TOKENS tokens at a time, and each holds its part of their latents in registers.
// Rebuilding, rotating and the product with q are linear, so each thread does all three for its part, and only scores
// are added up over the threads. A weight serves TOKENS tokens and the LANES query heads of a workgroup. In the ring
// the turn of a pair moves on from token to token by one product; TOKENS of them lose no more than the sums do.
// Bindings: 0 params, 1 queries [sequence][query head][head width] f32, 2 keys (latents), 3 values (latents), 4
// partials, 5 spans, 6 scores, 7 positions of pinned tokens u32 [sequence, or sequence and KV head][slot], 8 weights
// [KV head][head width][rank, padded to even] f16 pairs, 9 means [KV head][head width] f32, 10 turns (rotary.wgsl).
// Run: lla-sim bench --kernel attend_rebuild
enable subgroups;
#storage
#include "attend_rows.wgsl"
#include "rotary.wgsl"

override KEY_EACH: u32;   // units of a latent that a thread takes at a time
override TOKENS: u32;     // tokens of a thread at a time
override ALIGNED: u32;    // 1: the rank is a multiple of 8, so that eight weights are 16 bytes in place

@group(0) @binding(1) var<storage, read> queries: array<f32>;
@group(0) @binding(7) var<storage, read> positions: array<u32>;
@group(0) @binding(8) var<storage, read> weights: array<vec4u>;
@group(0) @binding(9) var<storage, read> means: array<f32>;
@group(0) @binding(10) var<storage, read> turns: array<vec2f>;

const MOST_LATENT_VECS = 128u;
const MOST_TOKENS = 32u;
const MOST_WEIGHT_VECS = 32u;
var<private> latent: array<vec4f, MOST_LATENT_VECS>;   // [token][unit][vec]
var<private> parts: array<vec4f, MOST_TOKENS>;         // [token], by lane
var<private> position: array<u32, MOST_TOKENS>;        // of pinned tokens
var<private> upper: array<vec4f, MOST_WEIGHT_VECS>;    // weights of a pair's first row, [unit][vec]
var<private> lower: array<vec4f, MOST_WEIGHT_VECS>;    // of its second

#include "row_sum.wgsl"

// Token j of a thread whose first one is `own`; past the end the last one is repeated.
fn token_of(place: Place, own: u32, j: u32) -> u32 { return min(own + j * (STREAM / WIDE), place.end - 1u); }

// Takes units unit0 + c + WIDE k of the thread's tokens. Registers move up one token at a time: an index that is no
// constant would put them into memory.
fn load_latents(place: Place, own: u32, c: u32, unit0: u32) {
  for (var j = 0u; j < TOKENS * params.once; j++) {
    for (var i = 0u; i < (TOKENS - 1u) * KEY_EACH * UNIT_VECS; i++) { latent[i] = latent[i + KEY_EACH * UNIT_VECS]; }
    for (var i = 0u; i < TOKENS - 1u; i++) { position[i] = position[i + 1u]; }
    let i = token_of(place, own, j);
    let token = token_at(params.keys, place.row, tiles_of_row(), slot_of(place, i));
    for (var k = 0u; k < KEY_EACH; k++) {
      let x = load_unit(&keys, params.keys, token, unit_of(params.keys, unit0 + c + WIDE * k));
      for (var v = 0u; v < UNIT_VECS; v++) { latent[((TOKENS - 1u) * KEY_EACH + k) * UNIT_VECS + v] = x[v]; }
    }
    if (place.pinned) {
      position[TOKENS - 1u] = positions[select(place.sequence, place.kv_row, params.positions_by_head == 1u) *
          (params.pinned + params.ring) + i];
    }
  }
}

// Weights [component, component + 4) of a row; zero past the rank.
fn weight_vec(row: u32, component: u32) -> vec4f {
  let rank = params.key_width;
  let at = row * ((rank + 1u) / 2u) + component / 2u;
  let next = min(at + 1u, 4u * arrayLength(&weights) - 1u);
  let first = min(at, 4u * arrayLength(&weights) - 1u);
  let w = vec4f(unpack2x16float(weights[first / 4u][first % 4u]), unpack2x16float(weights[next / 4u][next % 4u]));
  return select(vec4f(0.0), w, vec4u(component) + vec4u(0u, 1u, 2u, 3u) < vec4u(rank));
}

fn load_weights(rows: vec2u, c: u32, unit0: u32) {
  for (var k = 0u; k < KEY_EACH; k++) {
    let component = (unit0 + c + WIDE * k) * UNIT;
    if (ALIGNED == 1u && UNIT_VECS >= 2u) {
      for (var v = 0u; v < UNIT_VECS; v += 2u) {
        let here = select(0.0, 1.0, component + 4u * v < params.key_width);
        let a = weights[(rows.x * params.key_width + component) / 8u + v / 2u];
        let b = weights[(rows.y * params.key_width + component) / 8u + v / 2u];
        upper[k * UNIT_VECS + v] = here * vec4f(unpack2x16float(a.x), unpack2x16float(a.y));
        upper[k * UNIT_VECS + v + 1u] = here * vec4f(unpack2x16float(a.z), unpack2x16float(a.w));
        lower[k * UNIT_VECS + v] = here * vec4f(unpack2x16float(b.x), unpack2x16float(b.y));
        lower[k * UNIT_VECS + v + 1u] = here * vec4f(unpack2x16float(b.z), unpack2x16float(b.w));
      }
    } else {
      for (var v = 0u; v < UNIT_VECS; v++) {
        upper[k * UNIT_VECS + v] = weight_vec(rows.x, component + 4u * v);
        lower[k * UNIT_VECS + v] = weight_vec(rows.y, component + 4u * v);
      }
    }
  }
}

// The thread's part of a pair of token j: of W c + mu.
fn rebuilt(j: u32, mean: vec2f) -> vec2f {
  var x = vec4f(0.0);
  var y = vec4f(0.0);
  for (var k = 0u; k < KEY_EACH * UNIT_VECS; k++) {
    x = fma(upper[k], latent[j * KEY_EACH * UNIT_VECS + k], x);
    y = fma(lower[k], latent[j * KEY_EACH * UNIT_VECS + k], y);
  }
  return mean + vec2f((x.x + x.y) + (x.z + x.w), (y.x + y.y) + (y.z + y.w));
}

// Adds the thread's part of the scores: of the units that it holds.
fn add_pairs(place: Place, first_row: u32, own: u32, c: u32, unit0: u32) {
  let at = place.first_head * 2u * params.head_pairs;
  for (var m = 0u; m < params.head_pairs; m++) {
    let pair = pair_rows(m, params.head_pairs, params.adjacent_pairs);
    load_weights(first_row + pair, c, unit0);
    var mean = vec2f(0.0);
    if (unit0 == 0u && c == 0u) { mean = vec2f(means[first_row + pair.x], means[first_row + pair.y]); }
    var qx = vec4f(0.0);
    var qy = vec4f(0.0);
    for (var lane = 0u; lane < LANES; lane++) {
      let head = at + min(lane, place.lanes - 1u) * 2u * params.head_pairs;
      qx[lane] = queries[head + pair.x];
      qy[lane] = queries[head + pair.y];
    }
    let step = turns[m * ROTARY_BLOCK + STREAM / WIDE];
    var turn = turn_at(&turns, params.head_pairs, select(place.position + own, position[0], place.pinned), m);
    for (var j = 0u; j < TOKENS; j++) {
      if (j > 0u) {
        if (place.pinned) {
          turn = turn_at(&turns, params.head_pairs, position[j], m);
        } else {
          turn = add_angles(turn, step);
        }
      }
      let x = rotated(rebuilt(j, mean), turn);
      parts[j] = fma(qx, vec4f(x.x), fma(qy, vec4f(x.y), parts[j]));
    }
  }
}

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group_id: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) l: u32
) {
  let place = place_of(group_id, groups);
  let first_row = (group_id.y / params.lane_groups) * 2u * params.head_pairs;
  let c = l % WIDE;
  let rows = STREAM / WIDE;   // of a stream at a time
  let tokens = stream_tokens(l, place, rows * TOKENS);
  start_rows();
  // All threads of a subgroup take part in the shuffles, those of shorter streams too.
  let longest = stream_tokens(0u, place, rows * TOKENS);
  let steps = (longest.y - longest.x + rows * TOKENS - 1u) / (rows * TOKENS);
  for (var step = 0u; step < steps; step++) {
    let own = min(tokens.x + step * rows * TOKENS + (l % STREAM) / WIDE, place.end - 1u);
    let wanted = tokens.x + step * rows * TOKENS + (l % STREAM) / WIDE;
    for (var j = 0u; j < TOKENS; j++) { parts[j] = vec4f(0.0); }
    for (var unit0 = 0u; unit0 < params.keys.units; unit0 += WIDE * KEY_EACH) {
      load_latents(place, own, c, unit0);
      add_pairs(place, first_row, own, c, unit0);
    }
    for (var j = 0u; j < TOKENS * params.once; j++) {
      let s = select(vec4f(LOWEST), params.scale * row_sum(parts[0]), wanted + j * rows < tokens.y);
      fold_row(l, place, token_of(place, own, j), s);
      for (var i = 0u; i < TOKENS - 1u; i++) { parts[i] = parts[i + 1u]; }
    }
  }
  finish_rows(l, place);
}
