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
// (cos, sin) at the block's centre, 6 psi [pair - EXACT][even quads, odd quads], 7 phi [offset][even quads, odd quads].
// Run: lla-sim bench --kernel attend_block_absorbed
#element
#include "attend_fold.wgsl"

override RANK: u32;
override HEAD_PAIRS: u32;
override EXACT: u32;         // fast pairs taken as they are
override EVEN: u32;          // even functions for the other pairs, at most 16
override ODD: u32;
override EVEN_QUADS: u32;    // ceil((EXACT + EVEN) / 4)
override ODD_QUADS: u32;
override CHUNK: u32;         // latent components whose basis vectors are held at a time, even
override BASIS: u32;         // TILE / BLOCK * CHUNK * (EVEN_QUADS + ODD_QUADS), the mean's padding included
const BLOCK = 256u;
const HALF = BLOCK / 2u;
const BLOCK_THREADS = HALF / 2u;   // threads of a block, two offsets each
const MOST_QUADS = 16u;

@group(0) @binding(1) var<storage, read> vectors: array<vec2f>;
@group(0) @binding(5) var<storage, read> phases: array<vec2f>;
@group(0) @binding(6) var<storage, read> psi: array<vec4f>;
@group(0) @binding(7) var<storage, read> phi: array<vec4f>;

var<workgroup> basis: array<vec4f, BASIS>;   // [block of the tile][component of the chunk][quad]

// Basis vectors of one component of one block.
fn set_up(head: u32, block: u32, x: u32, at: u32) {
  let psi_quads_even = (EVEN + 3u) / 4u;
  let psi_quads = psi_quads_even + (ODD + 3u) / 4u;
  let from_vector = head * HEAD_PAIRS * (RANK + 2u) + x;
  for (var q = 0u; q < EVEN_QUADS + ODD_QUADS; q++) { basis[at + q] = vec4f(0.0); }
  for (var m = 0u; m < EXACT; m++) {
    let ab = vectors[from_vector + m * (RANK + 2u)];
    let turn = phases[block * HEAD_PAIRS + m];
    basis[at + m / 4u][m % 4u] = turn.x * ab.x + turn.y * ab.y;
    basis[at + EVEN_QUADS + m / 4u][m % 4u] = turn.x * ab.y - turn.y * ab.x;
  }
  var even: array<vec4f, 4>;
  var odd: array<vec4f, 4>;
  for (var q = 0u; q < 4u; q++) {
    even[q] = vec4f(0.0);
    odd[q] = vec4f(0.0);
  }
  for (var m = EXACT; m < HEAD_PAIRS; m++) {
    let ab = vectors[from_vector + m * (RANK + 2u)];
    let turn = phases[block * HEAD_PAIRS + m];
    let a = turn.x * ab.x + turn.y * ab.y;
    let b = turn.x * ab.y - turn.y * ab.x;
    let row = (m - EXACT) * psi_quads;
    for (var q = 0u; q < psi_quads_even; q++) { even[q] += a * psi[row + q]; }
    for (var q = 0u; q < psi_quads - psi_quads_even; q++) { odd[q] += b * psi[row + psi_quads_even + q]; }
  }
  for (var j = 0u; j < EVEN; j++) { basis[at + (EXACT + j) / 4u][(EXACT + j) % 4u] = even[j / 4u][j % 4u]; }
  for (var j = 0u; j < ODD; j++) { basis[at + EVEN_QUADS + (EXACT + j) / 4u][(EXACT + j) % 4u] = odd[j / 4u][j % 4u]; }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) l: u32) {
  let place = place_of(group_id, groups);
  let quads = EVEN_QUADS + ODD_QUADS;
  let components = RANK + 1u;   // the last is the mean, whose latent is 1
  let own_block = l / BLOCK_THREADS;
  let offset = l % BLOCK_THREADS;
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
      // Tokens of this thread in the tile: offsets +f, -f, +g, -g from the centre of its block.
      let centre = own_block * BLOCK + HALF;
      let tokens = vec4u(centre + offset, centre - 1u - offset, centre + BLOCK_THREADS + offset, centre - 1u - BLOCK_THREADS - offset);
      var at: vec4u;
      for (var k = 0u; k < 4u; k++) { at[k] = key_index(place.row, first + min(tokens[k], count - 1u), 0u, params.capacity, RANK / 2u); }
      var s = vec4f(0.0);
      for (var x0 = 0u; x0 < components; x0 += CHUNK) {
        workgroupBarrier();
        let staged = min(CHUNK, components - x0);
        for (var i = l; i < (TILE / BLOCK) * staged; i += WG) {
          let block = i / staged;
          if (block * BLOCK < count) { set_up(place.first_head + head0, first / BLOCK + block, x0 + i % staged, (block * CHUNK + i % staged) * quads); }
        }
        workgroupBarrier();
        // Two components share a stored pair; the mean is alone, RANK being even.
        for (var x = x0; x < x0 + staged; x += 2u) {
          let from_basis = (own_block * CHUNK + x - x0) * quads;
          var p = vec4f(0.0);   // even sums: component x at f and g, component x + 1 at f and g
          var r = vec4f(0.0);   // odd sums
          for (var q = 0u; q < EVEN_QUADS; q++) {
            let v = basis[from_basis + q];
            let w = basis[from_basis + quads + q];
            p += vec4f(dot(f[q], v), dot(g[q], v), dot(f[q], w), dot(g[q], w));
          }
          for (var q = EVEN_QUADS; q < quads; q++) {
            let v = basis[from_basis + q];
            let w = basis[from_basis + quads + q];
            r += vec4f(dot(f[q], v), dot(g[q], v), dot(f[q], w), dot(g[q], w));
          }
          let u = vec4f(p.x + r.x, p.x - r.x, p.y + r.y, p.y - r.y);
          if (x < RANK) {
            let t = vec4f(p.z + r.z, p.z - r.z, p.w + r.w, p.w - r.w);
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
