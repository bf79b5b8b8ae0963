// As matvec.wgsl, for f16 weights whose rows are whole quads of pairs (n a multiple of 8): a thread takes eight columns
// with one load, and a few steps of k at a time, so that enough loads are on their way.
// Bindings: 0 params, 1 x f32 and 3 y f32 (where their rows lie: Params), 2 weights [group / weight_group][k][pairs /
// 4].
// Run: lla-sim bench --kernel matmul

override WG: u32;
override COLUMNS: u32;   // quads a workgroup covers; divides WG
override ROWS: u32;      // rows of one pass, at most 8
override SHARES: u32;    // shares in workgroup memory: 2 * WG * ROWS, or 1 where threads do not split k
override STEPS: u32;     // of k that a thread loads before it multiplies, at most 4

#include "product.wgsl"
@group(0) @binding(2) var<storage, read> weights: array<vec4u>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

var<workgroup> shares: array<vec4f, SHARES>;   // [row][half][thread]

fn low(w: vec4u) -> vec4f { return vec4f(unpack2x16float(w.x), unpack2x16float(w.y)); }
fn high(w: vec4u) -> vec4f { return vec4f(unpack2x16float(w.z), unpack2x16float(w.w)); }

// One half of a quad of a row of y, where there is such.
fn put(g: u32, row: u32, quad: u32, half: u32, value: vec4f) {
  if (row >= params.m || quad >= params.pairs / 4u) { return; }
  let at = params.y_offset + g * params.y_group + row * params.y_row + 8u * quad + 4u * half;
  for (var e = 0u; e < 4u; e++) {
    if (params.accumulate == 1u) { y[at + e] += value[e]; } else { y[at + e] = value[e]; }
  }
}

// Workgroups: (ROWS rows, COLUMNS quads, group); those of the same weights follow each other.
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(local_invocation_index) l: u32) {
  let slices = WG / COLUMNS;
  // Known to be 0 where there is one slice: k is the same for all threads then.
  var slice = 0u;
  if (slices > 1u) { slice = l / COLUMNS; }
  let quads = params.pairs / 4u;
  let j = group_id.y * COLUMNS + l - slice * COLUMNS;
  let row0 = group_id.x * ROWS;
  let g = group_id.z;
  var sum: array<vec4f, 16>;   // [row][half]
  if (j < quads) {
    // Rows past m repeat the last one: no branch in the loop, and nothing of them is written.
    var at: array<u32, 8>;
    for (var r = 0u; r < ROWS; r++) {
      at[r] = params.x_offset + g * params.x_group + min(row0 + r, params.m - 1u) * params.x_row;
    }
    var weight_at = ((g / params.weight_group) * params.k + slice) * quads + j;
    let stride = slices * quads;
    var k = slice;
    for (; k + (STEPS - 1u) * slices < params.k; k += STEPS * slices) {
      var w: array<vec4u, 4>;
      for (var s = 0u; s < STEPS; s++) { w[s] = weights[weight_at + s * stride]; }
      weight_at += STEPS * stride;
      for (var s = 0u; s < STEPS; s++) {
        let a = low(w[s]);
        let b = high(w[s]);
        for (var r = 0u; r < ROWS; r++) {
          let v = x[at[r] + k + s * slices];
          sum[2u * r] += v * a;
          sum[2u * r + 1u] += v * b;
        }
      }
    }
    for (; k < params.k; k += slices) {
      let w = weights[weight_at];
      weight_at += stride;
      for (var r = 0u; r < ROWS; r++) {
        let v = x[at[r] + k];
        sum[2u * r] += v * low(w);
        sum[2u * r + 1u] += v * high(w);
      }
    }
  }
  if (slices == 1u) {
    for (var h = 0u; h < 2u * ROWS; h++) { put(g, row0 + h / 2u, j, h % 2u, sum[h]); }
    return;
  }
  for (var h = 0u; h < 2u * ROWS; h++) { shares[h * WG + l] = sum[h]; }
  workgroupBarrier();
  // One (row, half quad) a thread; the k-slices of a quad lie COLUMNS apart.
  for (var i = l; i < 2u * ROWS * COLUMNS; i += WG) {
    let h = i / COLUMNS;
    let column = i % COLUMNS;
    var total = vec4f(0.0);
    for (var s = 0u; s < slices; s++) { total += shares[h * WG + s * COLUMNS + column]; }
    put(g, row0 + h / 2u, group_id.y * COLUMNS + column, h % 2u, total);
  }
}
