// Split-KV decode attention with full RoPE straight on latents: K is never rebuilt. In a block of BLOCK positions centred on
// n0, with offset delta and the pairs' vectors turned to the centre,
//   A_m = cos(theta_m n0) a_m + sin(theta_m n0) b_m     B_m = cos(theta_m n0) b_m - sin(theta_m n0) a_m
//   s(n0 + delta) = sum_m (cos(theta_m delta) A_m + sin(theta_m delta) B_m) . c
// The tables cos(theta_m delta) and sin(theta_m delta) are the same in every block and numerically of low rank: the EXACT fastest
// pairs are taken as they are, the others through few functions Phi_j(delta) with Psi_j,m (src/gpu/block-basis.ts). Per block and
// latent component, `basis` holds A_m and sum_m Psi_j,m A_m (even in delta), B_m and sum_m Psi_j,m B_m (odd). Even and odd sums P and Q
// serve both signs of an offset: u(+delta) = P + Q, u(-delta) = P - Q.
// A thread takes two offsets of either sign, four tokens. Cached tokens stand in order of position, the first at a multiple of
// BLOCK from the table's start.
// Bindings: 0 params, 1 vectors (block_vectors.wgsl), 2 keys (latents), 3 values (latents), 4 partials, 5 phases [block][pair]
// (cos, sin) at the block's centre, 6 psi [pair][even quads, odd quads], 7 phi [offset][even quads, odd quads].
// Run: lla-sim bench --kernel attend_block_absorbed
#element
#include "attend_fold.wgsl"

override RANK: u32;
override HEAD_PAIRS: u32;
override EXACT: u32;         // fast pairs taken as they are
override EVEN_QUADS: u32;    // of the exact pairs and the even functions together
override ODD_QUADS: u32;
override CHUNK: u32;         // latent components whose basis vectors are held at a time, even
override BASIS: u32;         // CHUNK * (EVEN_QUADS + ODD_QUADS), the mean's padding included
const BLOCK = 256u;
const HALF = BLOCK / 2u;
const BLOCK_THREADS = HALF / 2u;   // two offsets each: WG; a tile is a block
const MOST_QUADS = 16u;

@group(0) @binding(1) var<storage, read> vectors: array<vec2f>;
@group(0) @binding(5) var<storage, read> phases: array<vec2f>;
@group(0) @binding(6) var<storage, read> psi: array<vec4f>;
@group(0) @binding(7) var<storage, read> phi: array<vec4f>;

var<workgroup> basis: array<vec4f, BASIS>;   // [component of the chunk][quad]

// One quad of basis vectors of component x: sum over the pairs of A_m psi_m (even quads) or B_m psi_m (odd quads). Pairs that are
// taken as they are have a one in psi, so a quad of only such pairs sums no others.
fn basis_quad(head: u32, block: u32, x: u32, quad: u32) -> vec4f {
  let odd = quad >= EVEN_QUADS;
  let own = 4u * select(quad, quad - EVEN_QUADS, odd);
  let end = select(HEAD_PAIRS, own + 4u, own + 4u <= EXACT);
  var sum = vec4f(0.0);
  for (var m = min(own, EXACT); m < end; m++) {
    let ab = vectors[(head * HEAD_PAIRS + m) * (RANK + 2u) + x];
    let turn = phases[block * HEAD_PAIRS + m];
    sum += select(turn.x * ab.x + turn.y * ab.y, turn.x * ab.y - turn.y * ab.x, odd) * psi[m * (EVEN_QUADS + ODD_QUADS) + quad];
  }
  return sum;
}

// u(+delta), u(-delta) at two offsets, from their even and odd products.
fn both_signs(even_f: vec4f, odd_f: vec4f, even_g: vec4f, odd_g: vec4f) -> vec4f {
  let one = vec4f(1.0);
  return vec4f(dot(even_f + odd_f, one), dot(even_f - odd_f, one), dot(even_g + odd_g, one), dot(even_g - odd_g, one));
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) l: u32) {
  let place = place_of(group_id, groups);
  let quads = EVEN_QUADS + ODD_QUADS;
  let components = RANK + 1u;   // the last is the mean, whose latent is 1
  let offset = l;
  var f: array<vec4f, MOST_QUADS>;   // functions at this thread's first offset
  var g: array<vec4f, MOST_QUADS>;   // and at its second
  for (var q = 0u; q < quads; q++) {
    f[q] = phi[offset * quads + q];
    g[q] = phi[(offset + BLOCK_THREADS) * quads + q];
  }
  for (var head0 = 0u; head0 < GROUP; head0++) {
    start_lanes();
    for (var first = place.begin; first < place.end; first += TILE) {
      let count = min(TILE, place.end - first);
      // Tokens of this thread in the block: offsets +f, -f, +g, -g from the centre.
      let tokens = vec4u(HALF + offset, HALF - 1u - offset, HALF + BLOCK_THREADS + offset, HALF - 1u - BLOCK_THREADS - offset);
      var at: vec4u;
      for (var k = 0u; k < 4u; k++) { at[k] = key_index(place.row, first + min(tokens[k], count - 1u), 0u, params.capacity, RANK / 2u); }
      var s = vec4f(0.0);
      for (var x0 = 0u; x0 < components; x0 += CHUNK) {
        workgroupBarrier();
        let staged = min(CHUNK, components - x0);
        // Components fastest: neighbouring threads read neighbouring vectors and work on the same quad.
        for (var i = l; i < staged * quads; i += WG) {
          basis[(i % staged) * quads + i / staged] = basis_quad(place.first_head + head0, first / BLOCK, x0 + i % staged, i / staged);
        }
        workgroupBarrier();
        // Two components share a stored pair; the mean is alone, RANK being even.
        for (var x = x0; x < x0 + staged; x += 2u) {
          let from_basis = (x - x0) * quads;
          var p: array<vec4f, 4>;   // even sums: component x at f and g, component x + 1 at f and g
          var r: array<vec4f, 4>;   // odd sums
          for (var k = 0u; k < 4u; k++) {
            p[k] = vec4f(0.0);
            r[k] = vec4f(0.0);
          }
          for (var q = 0u; q < EVEN_QUADS; q++) {
            let v = basis[from_basis + q];
            let w = basis[from_basis + quads + q];
            p[0] += f[q] * v;
            p[1] += g[q] * v;
            p[2] += f[q] * w;
            p[3] += g[q] * w;
          }
          for (var q = EVEN_QUADS; q < quads; q++) {
            let v = basis[from_basis + q];
            let w = basis[from_basis + quads + q];
            r[0] += f[q] * v;
            r[1] += g[q] * v;
            r[2] += f[q] * w;
            r[3] += g[q] * w;
          }
          let u = both_signs(p[0], r[0], p[1], r[1]);
          if (x < RANK) {
            let t = both_signs(p[2], r[2], p[3], r[3]);
            let i = (x / 2u) * TILE_TOKENS;
            let c0 = load_pair(keys[at.x + i]);
            let c1 = load_pair(keys[at.y + i]);
            let c2 = load_pair(keys[at.z + i]);
            let c3 = load_pair(keys[at.w + i]);
            s += u * vec4f(c0.x, c1.x, c2.x, c3.x) + t * vec4f(c0.y, c1.y, c2.y, c3.y);
          } else {
            s += u;
          }
        }
      }
      // The tile before may still be read in add_values.
      workgroupBarrier();
      for (var k = 0u; k < 4u; k++) {
        if (tokens[k] < count) { score[tokens[k]] = params.scale * s[k]; }
      }
      fold_tile(l, place, head0, first, count);
    }
    finish_lanes(l, place, head0);
  }
}
