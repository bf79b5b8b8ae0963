// y[g] = x[g] W[g] on matrix units, for many rows m: x is rounded to f16 on its way to workgroup memory, products are
// summed in f32. Any m, k and n. x has to have f16's range: magnitudes beyond 65504 overflow, and rows whose largest
// magnitude is below 1e-4 lose digits; else the rounding of x leaves an error of about 2e-4 of y's size
// (kernels/shared/dense/matrix.launch.ts). A workgroup of 128 threads makes a tile of y: its four subgroups lie DOWN
// along the rows and 4 / DOWN along the columns, each with BLOCK_ROWS × BLOCK_COLUMNS sums of 16 × 16. Tiles that share
// weights follow each other. The next 32 steps of k are on their way from memory while these are multiplied; with two
// buffers one barrier a stage is enough. Rows in workgroup memory are padded by 8 halves, so that 8 of them are in
// different banks. Bindings: 0 params, 1 x f32 and 3 y f32 (where their rows lie: Params), 2 weights [group /
// weight_group][k][pairs] f16 pairs (an odd n is padded), whole vec4s in all. Run: lla-sim bench --kernel matmul, on an
// adapter with matrix units. NOT YET RUN ON HARDWARE: see matrix_units.wgsl.
#include "matrix_units.wgsl"

override DOWN: u32;
override BLOCK_ROWS: u32;
override BLOCK_COLUMNS: u32;
override WHOLE_VECTORS: u32;   // 1: a row of weights is whole vec4s

const WG = 128u;
const DEPTH = 32u;
const PADDING = 8u;
const MOST_BLOCK_ROWS = 2u;
const MOST_BLOCKS = 8u;        // BLOCK_ROWS * BLOCK_COLUMNS
const MOST_ROW_LOADS = 16u;
const MOST_WEIGHT_LOADS = 4u;

override ROWS = SIDE * BLOCK_ROWS * DOWN;
override COLUMNS = SIDE * BLOCK_COLUMNS * (WG / SUBGROUP) / DOWN;
override LEFT_STRIDE = DEPTH + PADDING;
override RIGHT_STRIDE = COLUMNS + PADDING;
override LEFT_STAGE = ROWS * LEFT_STRIDE;
override RIGHT_STAGE = DEPTH * RIGHT_STRIDE;
override ROW_LOADS = ROWS * DEPTH / WG;
override WEIGHT_LOADS = DEPTH * COLUMNS / 8u / WG;

#include "product.wgsl"
@group(0) @binding(2) var<storage, read> weights: array<vec4u>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

var<workgroup> left_tile: array<f16, 2u * LEFT_STAGE>;     // [stage][row][k]
var<workgroup> right_tile: array<f16, 2u * RIGHT_STAGE>;   // [stage][k][column]
var<workgroup> sum_tile: array<f32, WG / SUBGROUP * SIDE * SIDE>;

// What a thread has on its way: k fastest over the threads for x, columns for W, as they lie in memory.
var<private> row_parts: array<f32, MOST_ROW_LOADS>;
var<private> weight_parts: array<vec4u, MOST_WEIGHT_LOADS>;

// Eight neighbouring weights of step k, from pair on; zero beyond the matrix.
fn weights_at(first: u32, k: u32, pair: u32) -> vec4u {
  var w = vec4u(0u);
  if (k < params.k && pair < params.pairs) {
    let at = (first + k) * params.pairs + pair;
    if (WHOLE_VECTORS == 1u) { return weights[at / 4u]; }
    for (var e = 0u; e < 4u; e++) {
      if (pair + e < params.pairs) { w[e] = weights[(at + e) / 4u][(at + e) % 4u]; }
    }
  }
  return w;
}

fn fetch(l: u32, group_id: vec3u, k0: u32) {
  let g = group_id.z;
  let k = k0 + l % DEPTH;
  for (var i = 0u; i < times(ROW_LOADS); i++) {
    let row = group_id.x * ROWS + l / DEPTH + i * (WG / DEPTH);
    let inside = row < params.m && k < params.k;
    let at = params.x_offset + g * params.x_group + row * params.x_row + k;
    row_parts[i] = select(0.0, x[select(params.x_offset, at, inside)], inside);
  }
  for (var i = 0u; i < times(WEIGHT_LOADS); i++) {
    let part = l + i * WG;
    let pair = group_id.y * (COLUMNS / 2u) + part % (COLUMNS / 8u) * 4u;
    weight_parts[i] = weights_at((g / params.weight_group) * params.k, k0 + part / (COLUMNS / 8u), pair);
  }
}

fn put(l: u32, stage: u32) {
  for (var i = 0u; i < times(ROW_LOADS); i++) {
    let row = l / DEPTH + i * (WG / DEPTH);
    left_tile[stage * LEFT_STAGE + row * LEFT_STRIDE + l % DEPTH] = f16(row_parts[i]);
  }
  for (var i = 0u; i < times(WEIGHT_LOADS); i++) {
    let part = l + i * WG;
    let at = stage * RIGHT_STAGE + part / (COLUMNS / 8u) * RIGHT_STRIDE + part % (COLUMNS / 8u) * 8u;
    for (var e = 0u; e < 4u; e++) {
      let pair = bitcast<vec2<f16>>(weight_parts[i][e]);
      right_tile[at + 2u * e] = pair.x;
      right_tile[at + 2u * e + 1u] = pair.y;
    }
  }
}

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group_id: vec3u,
  @builtin(local_invocation_index) l: u32,
  @builtin(subgroup_id) subgroup: u32
) {
  let unit = unit_of(l, subgroup);
  let unit_row = unit % DOWN * BLOCK_ROWS * SIDE;
  let unit_column = unit / DOWN * BLOCK_COLUMNS * SIDE;
  var sums: array<Sum, MOST_BLOCKS>;   // [row][column]
  fetch(l, group_id, 0u);
  var stage = 0u;
  for (var k0 = 0u; k0 < params.k; k0 += DEPTH) {
    // The stage that is overwritten was multiplied before the last barrier.
    put(l, stage);
    workgroupBarrier();
    if (k0 + DEPTH < params.k) { fetch(l, group_id, k0 + DEPTH); }
    for (var k = 0u; k < times(DEPTH); k += SIDE) {
      var left: array<Left, MOST_BLOCK_ROWS>;
      for (var a = 0u; a < times(BLOCK_ROWS); a++) {
        left[a] = load_left(stage * LEFT_STAGE + (unit_row + a * SIDE) * LEFT_STRIDE + k, LEFT_STRIDE);
      }
      for (var b = 0u; b < times(BLOCK_COLUMNS); b++) {
        let right = load_right(stage * RIGHT_STAGE + k * RIGHT_STRIDE + unit_column + b * SIDE, RIGHT_STRIDE);
        for (var a = 0u; a < times(BLOCK_ROWS); a++) {
          sums[a * BLOCK_COLUMNS + b] = multiply_add(left[a], right, sums[a * BLOCK_COLUMNS + b]);
        }
      }
    }
    stage = 1u - stage;
  }
  // One block of every subgroup at a time: y's rows may lie anywhere, end anywhere and be added to. Behind the barrier,
  // any 32 threads may write any subgroup's block.
  let y0 = params.y_offset + group_id.z * params.y_group;
  let writer = l / SUBGROUP;
  for (var a = 0u; a < BLOCK_ROWS; a++) {
    for (var b = 0u; b < BLOCK_COLUMNS; b++) {
      workgroupBarrier();
      store_sum(unit * SIDE * SIDE, sums[a * BLOCK_COLUMNS + b]);
      workgroupBarrier();
      for (var i = l % SUBGROUP; i < SIDE * SIDE; i += SUBGROUP) {
        let row = group_id.x * ROWS + (writer % DOWN * BLOCK_ROWS + a) * SIDE + i / SIDE;
        let column = group_id.y * COLUMNS + (writer / DOWN * BLOCK_COLUMNS + b) * SIDE + i % SIDE;
        if (row < params.m && column < params.n) {
          let at = y0 + row * params.y_row + column;
          var value = sum_tile[writer * SIDE * SIDE + i];
          if (params.accumulate == 1u) { value += y[at]; }
          y[at] = value;
        }
      }
    }
  }
}
