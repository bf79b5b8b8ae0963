// y[g] = x[g] W[g] for few rows m: every weight is read once and used for ROWS rows. W is [group][k][n], pairs along n.
// A workgroup covers COLUMNS pairs of one group; where it has more threads they split k among them, and the shares are
// added at the end.
// Bindings: 0 params, 1 x f32 and 3 y f32 (where their rows lie: Params), 2 weights [group / weight_group][k][pairs]
// (an odd n is padded). Run: lla-sim bench --kernel matmul
#element

override WG: u32;
override COLUMNS: u32;   // value pairs a workgroup covers; divides WG
override ROWS: u32;      // rows of one pass, at most 8
override SHARES: u32;    // shares in workgroup memory: WG * ROWS, or 1 where threads do not split k

#include "product.wgsl"
@group(0) @binding(2) var<storage, read> weights: array<Pair>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

var<workgroup> shares: array<vec2f, SHARES>;   // [row][thread]

// One pair of a row of y, where there is such.
fn put(g: u32, row: u32, pair: u32, value: vec2f) {
  if (row >= params.m || pair >= params.pairs) { return; }
  let at = params.y_offset + g * params.y_group + row * params.y_row + 2u * pair;
  let second = 2u * pair + 1u < params.n;
  var sum = value;
  if (params.accumulate == 1u) {
    sum.x += y[at];
    if (second) { sum.y += y[at + 1u]; }
  }
  y[at] = sum.x;
  if (second) { y[at + 1u] = sum.y; }
}

// Workgroups: (ROWS rows, COLUMNS pairs, group); those of the same weights follow each other.
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(local_invocation_index) l: u32) {
  let slices = WG / COLUMNS;
  let slice = l / COLUMNS;
  let j = group_id.y * COLUMNS + l % COLUMNS;
  let row0 = group_id.x * ROWS;
  let g = group_id.z;
  var sum: array<vec2f, 8>;
  if (j < params.pairs) {
    // Rows past m repeat the last one: no branch in the loop, and nothing of them is written.
    var at: array<u32, 8>;
    for (var r = 0u; r < ROWS; r++) {
      at[r] = params.x_offset + g * params.x_group + min(row0 + r, params.m - 1u) * params.x_row;
    }
    var weight_at = ((g / params.weight_group) * params.k + slice) * params.pairs + j;
    for (var k = slice; k < params.k; k += slices) {
      let w = load_pair(weights[weight_at]);
      weight_at += slices * params.pairs;
      for (var r = 0u; r < ROWS; r++) { sum[r] += x[at[r] + k] * w; }
    }
  }
  if (slices == 1u) {
    for (var r = 0u; r < ROWS; r++) { put(g, row0 + r, j, sum[r]); }
    return;
  }
  for (var r = 0u; r < ROWS; r++) { shares[r * WG + l] = sum[r]; }
  workgroupBarrier();
  // One (row, pair) a thread; the k-slices of a pair lie COLUMNS apart.
  for (var i = l; i < ROWS * COLUMNS; i += WG) {
    let r = i / COLUMNS;
    let column = i % COLUMNS;
    var total = vec2f(0.0);
    for (var s = 0u; s < slices; s++) { total += shares[r * WG + s * COLUMNS + column]; }
    put(g, row0 + r, group_id.y * COLUMNS + column, total);
  }
}
