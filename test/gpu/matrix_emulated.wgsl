// The functions of matrix_units.wgsl in plain WGSL: every 32 threads act as a subgroup, and each of them
// computes 8 elements of a 16 × 16 sum from workgroup memory. For tests only: products are those of f16 operands in
// f32, as the units make them, but one after the other.
enable f16;
enable subgroups;

const SIDE = 16u;
const SUBGROUP = 32u;
const EACH = SIDE * SIDE / SUBGROUP;

// Where a tile lies; element (row, column) at `at + row * by_row + column * by_column`.
struct Emulated { at: u32, by_row: u32, by_column: u32 }
alias Left = Emulated;
alias Right = Emulated;
alias Sum = array<f32, EACH>;

var<private> lane: u32;
// 1, which the compiler cannot know: it would unroll every loop, and take minutes.
var<private> once: u32;

fn unit_of(l: u32, subgroup: u32) -> u32 {
  lane = l % SUBGROUP;
  once = 1u + subgroup / 65536u;
  return l / SUBGROUP;
}

fn times(n: u32) -> u32 { return n * once; }

fn load_left(at: u32, stride: u32) -> Left { return Emulated(at, stride, 1u); }
fn load_right(at: u32, stride: u32) -> Right { return Emulated(at, stride, 1u); }
fn load_right_columns(at: u32, stride: u32) -> Right { return Emulated(at, 1u, stride); }

fn multiply_add(left: Left, right: Right, sum: Sum) -> Sum {
  var result = sum;
  for (var i = 0u; i < times(EACH); i++) {
    let row = (lane + SUBGROUP * i) / SIDE;
    let column = lane % SIDE;
    for (var k = 0u; k < times(SIDE); k++) {
      let a = f32(left_tile[left.at + row * left.by_row + k * left.by_column]);
      result[i] += a * f32(right_tile[right.at + k * right.by_row + column * right.by_column]);
    }
  }
  return result;
}

fn store_sum(at: u32, sum: Sum) {
  for (var i = 0u; i < times(EACH); i++) { sum_tile[at + lane + SUBGROUP * i] = sum[i]; }
}
