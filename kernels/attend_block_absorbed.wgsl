// Split-KV decode attention with full RoPE straight on latents: K is never rebuilt. In a block of 2 HALF positions centred on n0,
// with offset delta and the pairs' vectors (block_vectors.wgsl) turned to the centre,
//   A_m = cos(theta_m n0) a_m + sin(theta_m n0) b_m     B_m = cos(theta_m n0) b_m - sin(theta_m n0) a_m
//   s(n0 + delta) = sum_m (cos(theta_m delta) A_m + sin(theta_m delta) B_m) . c
// The tables cos(theta_m delta) and sin(theta_m delta) are the same in every block and numerically of low rank: the EXACT fastest
// pairs are taken as they are, the others through few functions phi_j(delta) with psi_j,m (src/schedule/block-basis.ts). Per block
// and latent component, `basis` holds A_m and sum_m psi_j,m A_m (even in delta), B_m and sum_m psi_j,m B_m (odd). Even and odd sums
// P and Q serve both signs of an offset: u(+delta) = P + Q, u(-delta) = P - Q.
//
// A thread holds phi at OFFSETS offsets, so that a basis vector that it loads serves OFFSETS tokens of either sign. Blocks are
// counted from where a split begins, so that no split starts inside a block.
// Bindings: 0 params, 1 vectors [query head][pair][component pair] (a, b, a, b), 2 keys (latents), 3 values (latents), 4 partials,
// 5 spans, 6 coarse [position / FINE][pair] and 7 fine [position % FINE][pair] (cos, sin; fine is turned on by HALF - 1/2),
// 8 psi [pair][quad], 9 phi [function][offset].
// Run: lla-sim bench --kernel attend_block_absorbed
#include "attend_fold.wgsl"

override HEAD_PAIRS: u32;
override HALF: u32;          // TILE / 2, OFFSETS * WG
override OFFSETS: u32;       // offsets of a thread, at most MOST_OFFSETS
override EXACT: u32;         // fast pairs taken as they are
override MORE_EVEN: u32;     // functions of the other pairs
override MORE_ODD: u32;
override EVEN: u32;          // EXACT + MORE_EVEN
override ODD: u32;
override FUNCTIONS: u32;     // EVEN + ODD
override PSI_QUADS: u32;     // ceil((MORE_EVEN + MORE_ODD) / 4)
override CHUNK: u32;         // quads of latent components whose basis vectors are held at a time
override BASIS: u32;         // CHUNK * FUNCTIONS
const FINE = 1024u;
const MOST_OFFSETS = 8u;
const MOST_FUNCTIONS = 64u;
const MOST_MORE = 32u;

@group(0) @binding(1) var<storage, read> vectors: array<vec4f>;
@group(0) @binding(6) var<storage, read> coarse: array<vec2f>;
@group(0) @binding(7) var<storage, read> fine: array<vec2f>;
@group(0) @binding(8) var<storage, read> psi: array<vec4f>;
@group(0) @binding(9) var<storage, read> phi: array<f32>;

var<workgroup> turns: array<vec2f, HEAD_PAIRS>;
var<workgroup> basis: array<vec4f, BASIS>;            // [quad of components][function]
var<workgroup> mean_basis: array<f32, FUNCTIONS>;     // of the mean, whose latent is 1
var<private> phi_at: array<f32, MOST_OFFSETS * MOST_FUNCTIONS>;   // [offset of this thread][function]
var<private> sides: array<vec2f, MOST_OFFSETS>;       // scores of this thread's tokens after and before the centre

// Angles to the centre of the block that starts at `position`.
fn turn_pairs(l: u32, position: u32) {
  for (var m = l; m < HEAD_PAIRS * params.once; m += WG) {
    let x = coarse[(position / FINE) * HEAD_PAIRS + m];
    let y = fine[(position % FINE) * HEAD_PAIRS + m];
    turns[m] = vec2f(x.x * y.x - x.y * y.y, x.y * y.x + x.x * y.y);
  }
}

// A and B of four components of a pair.
struct Turned { a: vec4f, b: vec4f }
fn turned(head: u32, m: u32, quad: u32) -> Turned {
  let width = (params.key_width + 2u) / 2u;   // pairs of components with the mean, padded to even
  let from_vector = (head * HEAD_PAIRS + m) * width;
  let v = vectors[from_vector + min(2u * quad, width - 1u)];
  let w = vectors[from_vector + min(2u * quad + 1u, width - 1u)];
  let turn = turns[m];
  let a = vec4f(v.xz, w.xz);
  let b = vec4f(v.yw, w.yw);
  return Turned(turn.x * a + turn.y * b, turn.x * b - turn.y * a);
}

fn put(quad: u32, j: u32, at: u32, is_mean: bool, v: vec4f) {
  if (is_mean) { mean_basis[j] = v[params.key_width % 4u]; } else { basis[at * FUNCTIONS + j] = v; }
}

// Basis vectors of a quad of components, stored as the chunk's quad `at` or as the mean's.
fn set_up(head: u32, quad: u32, at: u32, is_mean: bool) {
  for (var m = 0u; m < EXACT * params.once; m++) {
    let t = turned(head, m, quad);
    put(quad, m, at, is_mean, t.a);
    put(quad, EVEN + m, at, is_mean, t.b);
  }
  var more: array<vec4f, MOST_MORE>;
  for (var j = 0u; j < MORE_EVEN + MORE_ODD; j++) { more[j] = vec4f(0.0); }
  for (var m = EXACT; m < HEAD_PAIRS * params.once; m++) {
    let t = turned(head, m, quad);
    for (var q = 0u; q < PSI_QUADS; q++) {
      let p = psi[(m - EXACT) * PSI_QUADS + q];
      for (var e = 0u; e < 4u; e++) {
        let j = 4u * q + e;
        if (j < MORE_EVEN) { more[j] = fma(vec4f(p[e]), t.a, more[j]); }
        else if (j < MORE_EVEN + MORE_ODD) { more[j] = fma(vec4f(p[e]), t.b, more[j]); }
      }
    }
  }
  for (var j = 0u; j < MORE_EVEN; j++) { put(quad, EXACT + j, at, is_mean, more[j]); }
  for (var j = 0u; j < MORE_ODD; j++) { put(quad, EVEN + EXACT + j, at, is_mean, more[MORE_EVEN + j]); }
}

// The tokens of a block at an offset after and before its centre.
fn tokens_at(offset: u32) -> vec2u { return vec2u(HALF + offset, HALF - 1u - offset); }

fn score_of(place: Place, lane: u32, i: u32) -> f32 { return params.scale * scratch[i]; }

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) l: u32) {
  let place = place_of(group_id, groups);
  let units = params.keys.units;
  let key_quads = (params.key_width + 3u) / 4u;
  for (var k = 0u; k < OFFSETS; k++) {
    for (var j = 0u; j < FUNCTIONS; j++) { phi_at[k * MOST_FUNCTIONS + j] = phi[j * HALF + l + k * WG]; }
  }
  start_lanes();
  for (var first = place.begin; first < place.end; first += TILE) {
    let count = min(TILE, place.end - first);
    turn_pairs(l, place.position + first);
    // Tokens past the end repeat the last one; their scores are not used.
    var after: array<Token, MOST_OFFSETS>;
    var before: array<Token, MOST_OFFSETS>;
    for (var k = 0u; k < OFFSETS; k++) {
      let tokens = tokens_at(l + k * WG);
      after[k] = token_at(params.keys, place.row, tiles_of_row(), slot_of(place, first + min(tokens.x, count - 1u)));
      before[k] = token_at(params.keys, place.row, tiles_of_row(), slot_of(place, first + min(tokens.y, count - 1u)));
      sides[k] = vec2f(0.0);
    }
    for (var quad0 = 0u; quad0 < key_quads; quad0 += CHUNK) {
      workgroupBarrier();
      let staged = min(CHUNK, key_quads - quad0);
      let last = quad0 + staged == key_quads;
      for (var i = l; i < staged + select(0u, 1u, last); i += WG) {
        set_up(place.first_head, select(quad0 + i, params.key_width / 4u, i == staged), i, i == staged);
      }
      workgroupBarrier();
      for (var unit = quad0 / UNIT_VECS; unit * UNIT_VECS < quad0 + staged; unit++) {
        var x: array<Unit, MOST_OFFSETS>;
        var y: array<Unit, MOST_OFFSETS>;
        for (var k = 0u; k < OFFSETS; k++) {
          x[k] = load_unit(&keys, params.keys, after[k], unit);
          y[k] = load_unit(&keys, params.keys, before[k], unit);
        }
        var parts = UNIT_VECS;
        if (UNIT_VECS > 2u) { parts *= params.once; }
        for (var e = 0u; e < parts; e++) {
          let at = min(unit * UNIT_VECS + e - quad0, staged - 1u) * FUNCTIONS;
          var even: array<vec4f, MOST_OFFSETS>;
          var odd: array<vec4f, MOST_OFFSETS>;
          for (var k = 0u; k < OFFSETS; k++) {
            even[k] = vec4f(0.0);
            odd[k] = vec4f(0.0);
          }
          for (var j = 0u; j < EVEN; j++) {
            let v = basis[at + j];
            for (var k = 0u; k < OFFSETS; k++) { even[k] = fma(vec4f(phi_at[k * MOST_FUNCTIONS + j]), v, even[k]); }
          }
          for (var j = 0u; j < ODD; j++) {
            let v = basis[at + EVEN + j];
            for (var k = 0u; k < OFFSETS; k++) { odd[k] = fma(vec4f(phi_at[k * MOST_FUNCTIONS + EVEN + j]), v, odd[k]); }
          }
          for (var k = 0u; k < OFFSETS; k++) { sides[k] += vec2f(dot(even[k] + odd[k], x[k][e]), dot(even[k] - odd[k], y[k][e])); }
        }
      }
    }
    for (var j = 0u; j < EVEN; j++) {
      for (var k = 0u; k < OFFSETS; k++) { sides[k] += vec2f(phi_at[k * MOST_FUNCTIONS + j] * mean_basis[j]); }
    }
    for (var j = 0u; j < ODD; j++) {
      for (var k = 0u; k < OFFSETS; k++) { sides[k] += vec2f(1.0, -1.0) * (phi_at[k * MOST_FUNCTIONS + EVEN + j] * mean_basis[EVEN + j]); }
    }
    for (var k = 0u; k < OFFSETS; k++) {
      let tokens = tokens_at(l + k * WG);
      scratch[tokens.x] = sides[k].x;
      scratch[tokens.y] = sides[k].y;
    }
    workgroupBarrier();
    fold_tile(l, place, first, count);
  }
  finish_lanes(l, place);
}
