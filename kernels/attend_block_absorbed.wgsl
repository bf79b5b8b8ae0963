// Split-KV decode attention with full RoPE straight on latents: K is never rebuilt. In a block of BLOCK positions centred on
// n0, with offset delta and the pairs' vectors turned to the centre,
//   A_m = cos(theta_m n0) a_m + sin(theta_m n0) b_m     B_m = cos(theta_m n0) b_m - sin(theta_m n0) a_m
//   s(n0 + delta) = sum_m (cos(theta_m delta) A_m + sin(theta_m delta) B_m) . c
// The tables cos(theta_m delta) and sin(theta_m delta) are the same in every block and numerically of low rank: the EXACT fastest
// pairs are taken as they are, the others through few functions Phi_j(delta) with Psi_j,m (src/gpu/block-basis.ts). Per block and
// latent component, `basis` holds A_m and sum_m Psi_j,m A_m (even in delta), B_m and sum_m Psi_j,m B_m (odd). Even and odd sums P and Q
// serve both signs of an offset: u(+delta) = P + Q, u(-delta) = P - Q.
// A thread takes OFFSETS offsets of either sign, so that a basis vector that it loads serves as many tokens twice over. Cached tokens stand in order of position, the first at a multiple of
// BLOCK from the table's start.
// Bindings: 0 params, 1 vectors (block_vectors.wgsl), 2 keys (latents), 3 values (latents), 4 partials, 5 phases [block][pair]
// (cos, sin) at the block's centre, 6 psi [pair][even quads, odd quads], 7 phi [offset][even quads, odd quads].
// Run: lla-sim bench --kernel attend_block_absorbed
#element
#include "attend_fold.wgsl"

override HEAD_PAIRS: u32;
override EXACT: u32;         // fast pairs taken as they are
override EVEN_QUADS: u32;    // of the exact pairs and the even functions together
override ODD_QUADS: u32;
override CHUNK: u32;         // latent components whose basis vectors are held at a time, even
override BASIS: u32;         // CHUNK * (EVEN_QUADS + ODD_QUADS), the mean's padding included
const BLOCK = 256u;
const HALF = BLOCK / 2u;
const OFFSETS = 4u;                      // of either sign, that a thread takes
const BLOCK_THREADS = HALF / OFFSETS;    // WG; a tile is a block
const MOST_QUADS = 16u;
const MOST_FUNCTIONS = MOST_QUADS * OFFSETS;

@group(0) @binding(1) var<storage, read> vectors: array<vec2f>;
@group(0) @binding(5) var<storage, read> phases: array<vec2f>;
@group(0) @binding(6) var<storage, read> psi: array<vec4f>;
@group(0) @binding(7) var<storage, read> phi: array<vec4f>;

var<workgroup> basis: array<vec4f, BASIS>;   // [component of the chunk][quad]

// Basis vectors of components x and x + 1 in one even and one odd quad: sums over the pairs of A_m psi_m and of B_m psi_m. Pairs that
// are taken as they are have a one in psi, so a quad of only such pairs sums no others.
fn set_up(head: u32, block: u32, x: u32, quad: u32, at: u32) {
  let quads = EVEN_QUADS + ODD_QUADS;
  let own = 4u * quad;
  let end = select(HEAD_PAIRS, own + 4u, own + 4u <= EXACT);
  var even = array<vec4f, 2>(vec4f(0.0), vec4f(0.0));
  var odd = array<vec4f, 2>(vec4f(0.0), vec4f(0.0));
  for (var m = min(own, EXACT); m < end; m++) {
    let from_vector = (head * HEAD_PAIRS + m) * (2u * params.key_pairs + 2u) + x;
    let turn = phases[block * HEAD_PAIRS + m];
    let first = vectors[from_vector];
    let second = vectors[from_vector + 1u];
    // A quad that one parity does not have reads some quad of the other, and is not stored.
    let even_psi = psi[m * quads + quad];
    let odd_psi = psi[m * quads + min(EVEN_QUADS + quad, quads - 1u)];
    even[0] += dot(turn, first) * even_psi;
    even[1] += dot(turn, second) * even_psi;
    odd[0] += (turn.x * first.y - turn.y * first.x) * odd_psi;
    odd[1] += (turn.x * second.y - turn.y * second.x) * odd_psi;
  }
  if (quad < EVEN_QUADS) {
    basis[at + quad] = even[0];
    basis[at + quads + quad] = even[1];
  }
  if (quad < ODD_QUADS) {
    basis[at + EVEN_QUADS + quad] = odd[0];
    basis[at + quads + EVEN_QUADS + quad] = odd[1];
  }
}

// u(+delta), u(-delta) from the even and odd products.
fn both_signs(even: vec4f, odd: vec4f) -> vec2f {
  return vec2f(dot(even + odd, vec4f(1.0)), dot(even - odd, vec4f(1.0)));
}

// The tokens of a block at an offset after and before its centre.
fn tokens_at(offset: u32) -> vec2u { return vec2u(HALF + offset, HALF - 1u - offset); }

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) l: u32) {
  let place = place_of(group_id, groups);
  let quads = EVEN_QUADS + ODD_QUADS;
  let components = 2u * params.key_pairs + 1u;   // the last is the mean, whose latent is 1
  let offset = l;
  var f: array<vec4f, MOST_FUNCTIONS>;   // [offset of this thread][quad]: the functions there
  for (var k = 0u; k < OFFSETS; k++) {
    for (var q = 0u; q < quads; q++) { f[k * MOST_QUADS + q] = phi[(offset + k * BLOCK_THREADS) * quads + q]; }
  }
  for (var head0 = 0u; head0 < params.group; head0++) {
    start_lanes();
    for (var first = place.begin; first < place.end; first += TILE) {
      let count = min(TILE, place.end - first);
      // Tokens of this thread in the block: each of its offsets, after and before the centre.
      var at: array<vec2u, OFFSETS>;
      var s: array<vec2f, OFFSETS>;
      for (var k = 0u; k < OFFSETS; k++) {
        let tokens = tokens_at(offset + k * BLOCK_THREADS);
        at[k].x = key_index(place.row, first + min(tokens.x, count - 1u), 0u, params.capacity, params.key_pairs);
        at[k].y = key_index(place.row, first + min(tokens.y, count - 1u), 0u, params.capacity, params.key_pairs);
        s[k] = vec2f(0.0);
      }
      for (var x0 = 0u; x0 < components; x0 += CHUNK) {
        workgroupBarrier();
        let staged = min(CHUNK, components - x0);
        // Components fastest: neighbouring threads read neighbouring vectors and work on the same quads.
        let pairs = (staged + 1u) / 2u;
        for (var i = l; i < pairs * max(EVEN_QUADS, ODD_QUADS); i += WG) {
          let x = 2u * (i % pairs);
          set_up(place.first_head + head0, first / BLOCK, x0 + x, i / pairs, x * quads);
        }
        workgroupBarrier();
        // Two components share a stored pair; the mean is alone, the rank being even.
        for (var x = x0; x < x0 + staged; x += 2u) {
          let from_basis = (x - x0) * quads;
          var even: array<vec4f, 2u * OFFSETS>;   // [offset][component x, component x + 1]
          var odd: array<vec4f, 2u * OFFSETS>;
          for (var k = 0u; k < 2u * OFFSETS; k++) {
            even[k] = vec4f(0.0);
            odd[k] = vec4f(0.0);
          }
          for (var q = 0u; q < EVEN_QUADS; q++) {
            let v = basis[from_basis + q];
            let w = basis[from_basis + quads + q];
            for (var k = 0u; k < OFFSETS; k++) {
              even[2u * k] += f[k * MOST_QUADS + q] * v;
              even[2u * k + 1u] += f[k * MOST_QUADS + q] * w;
            }
          }
          for (var q = EVEN_QUADS; q < quads; q++) {
            let v = basis[from_basis + q];
            let w = basis[from_basis + quads + q];
            for (var k = 0u; k < OFFSETS; k++) {
              odd[2u * k] += f[k * MOST_QUADS + q] * v;
              odd[2u * k + 1u] += f[k * MOST_QUADS + q] * w;
            }
          }
          for (var k = 0u; k < OFFSETS; k++) {
            let u = both_signs(even[2u * k], odd[2u * k]);
            if (x < 2u * params.key_pairs) {
              let t = both_signs(even[2u * k + 1u], odd[2u * k + 1u]);
              let after = load_pair(keys[at[k].x + (x / 2u) * TILE_TOKENS]);
              let before = load_pair(keys[at[k].y + (x / 2u) * TILE_TOKENS]);
              s[k] += u * vec2f(after.x, before.x) + t * vec2f(after.y, before.y);
            } else {
              s[k] += u;
            }
          }
        }
      }
      // The tile before may still be read in add_values.
      workgroupBarrier();
      for (var k = 0u; k < OFFSETS; k++) {
        let tokens = tokens_at(offset + k * BLOCK_THREADS);
        if (tokens.x < count) { score[tokens.x] = params.scale * s[k].x; }
        if (tokens.y < count) { score[tokens.y] = params.scale * s[k].y; }
      }
      fold_tile(l, place, head0, first, count);
    }
    finish_lanes(l, place, head0);
  }
}
