// y[g] = x[g] W[g] for many rows m: tiles of BM rows by 64 columns, 4 x 4 outputs a thread, 16 steps of k at a time in
// workgroup memory. Any m, k and n.
// Bindings: 0 params, 1 x f32 and 3 y f32 (where their rows lie: Params), 2 weights [group / weight_group][k][pairs]
// (an odd n is padded). Run: lla-sim bench --kernel matmul
#element

override WG: u32;        // BM * BN / 16 threads
override BM: u32;        // rows of a tile: a multiple of 4
override X_QUADS: u32;   // BK * BM / 4
const BN = 64u;
const BK = 16u;

#include "product.wgsl"
@group(0) @binding(2) var<storage, read> weights: array<Pair>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

var<workgroup> x_tile: array<vec4f, X_QUADS>;        // [k][row / 4]
var<workgroup> w_tile: array<vec4f, BK * BN / 4u>;   // [k][column / 4]

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(local_invocation_index) l: u32) {
  let row0 = group_id.y * BM;
  let pair0 = group_id.x * (BN / 2u);
  let g = group_id.z;
  let x0 = params.x_offset + g * params.x_group;
  let y0 = params.y_offset + g * params.y_group;
  let weights0 = (g / params.weight_group) * params.k;
  let tile_row = l / (BN / 4u);
  let tile_column = l % (BN / 4u);
  var sum: array<vec4f, 4>;   // [row]
  for (var k0 = 0u; k0 < params.k; k0 += BK) {
    workgroupBarrier();
    // k fastest over the threads: rows of x are contiguous along k.
    for (var i = l; i < BK * BM / 4u; i += WG) {
      let k = k0 + i % BK;
      let quad = i / BK;
      var v = vec4f(0.0);
      for (var e = 0u; e < 4u; e++) {
        let row = row0 + quad * 4u + e;
        if (row < params.m && k < params.k) { v[e] = x[x0 + row * params.x_row + k]; }
      }
      x_tile[(i % BK) * (BM / 4u) + quad] = v;
    }
    for (var i = l; i < BK * BN / 4u; i += WG) {
      let k = k0 + i / (BN / 4u);
      let pair = pair0 + 2u * (i % (BN / 4u));
      var v = vec4f(0.0);
      if (k < params.k) {
        let at = (weights0 + k) * params.pairs + pair;
        if (pair < params.pairs) { v = vec4f(load_pair(weights[at]), 0.0, 0.0); }
        if (pair + 1u < params.pairs) { v = vec4f(v.xy, load_pair(weights[at + 1u])); }
      }
      w_tile[i] = v;
    }
    workgroupBarrier();
    for (var k = 0u; k < BK; k++) {
      let a = x_tile[k * (BM / 4u) + tile_row];
      let b = w_tile[k * (BN / 4u) + tile_column];
      sum[0] += a.x * b;
      sum[1] += a.y * b;
      sum[2] += a.z * b;
      sum[3] += a.w * b;
    }
  }
  let column = 2u * pair0 + 4u * tile_column;
  for (var e = 0u; e < 4u; e++) {
    let row = row0 + 4u * tile_row + e;
    if (row < params.m) {
      for (var c = 0u; c < 4u; c++) {
        if (column + c < params.n) {
          let at = y0 + row * params.y_row + column + c;
          if (params.accumulate == 1u) { y[at] += sum[e][c]; } else { y[at] = sum[e][c]; }
        }
      }
    }
  }
}
