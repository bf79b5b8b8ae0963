// The uniform block of every product, and where the rows of x and y lie.
struct Params {
  m: u32,
  k: u32,
  n: u32,
  pairs: u32,          // of a stored row of weights: n / 2 (transposed: k / 2), rounded up
  x_offset: u32,       // float of group 0, row 0; a row's components follow each other
  x_row: u32,          // floats from a row to the next
  x_group: u32,        // floats from a group to the next
  y_offset: u32,
  y_row: u32,
  y_group: u32,
  weight_group: u32,   // groups that share weights
  accumulate: u32,     // 1: y += x W
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
