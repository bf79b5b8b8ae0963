// y[g] = x[g] W[g]^T, W [group / weight_group][n][pairs of k]: a product with weights that lie the other way round,
// such as the up-projection of keys, which attention reads row by row. A thread is one column and ROWS rows, without
// workgroup memory.
// Bindings: 0 params, 1 x f32 and 3 y f32 (where their rows lie: Params), 2 weights. Run by prefill
// (decoder/gpu/prefill.ts).
#element

override WG: u32;
const ROWS = 8u;

#include "product.wgsl"
@group(0) @binding(2) var<storage, read> weights: array<Pair>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

// Workgroups: (WG columns, ROWS rows, group).
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3u, @builtin(local_invocation_index) l: u32) {
  let column = id.x * WG + l;
  if (column >= params.n) { return; }
  let row0 = id.y * ROWS;
  var at: array<u32, ROWS>;
  var sum: array<f32, ROWS>;
  for (var r = 0u; r < ROWS; r++) {
    at[r] = params.x_offset + id.z * params.x_group + min(row0 + r, params.m - 1u) * params.x_row;
  }
  let weights0 = ((id.z / params.weight_group) * params.n + column) * params.pairs;
  for (var pair = 0u; pair < params.k / 2u; pair++) {
    let w = load_pair(weights[weights0 + pair]);
    for (var r = 0u; r < ROWS; r++) { sum[r] += x[at[r] + 2u * pair] * w.x + x[at[r] + 2u * pair + 1u] * w.y; }
  }
  if (params.k % 2u == 1u) {
    let w = load_pair(weights[weights0 + params.pairs - 1u]).x;
    for (var r = 0u; r < ROWS; r++) { sum[r] += x[at[r] + params.k - 1u] * w; }
  }
  for (var r = 0u; r < ROWS; r++) {
    if (row0 + r < params.m) {
      let out = params.y_offset + id.z * params.y_group + (row0 + r) * params.y_row + column;
      if (params.accumulate == 1u) { y[out] += sum[r]; } else { y[out] = sum[r]; }
    }
  }
}
