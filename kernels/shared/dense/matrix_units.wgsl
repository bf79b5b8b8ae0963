// Products of 16 × 16 tiles on matrix units, f16 into f32, by subgroups of 32 threads. Tiles are read from workgroup
// memory and sums written to it; a barrier separates other threads' accesses from these. A kernel includes this before
// anything else, and declares left_tile and right_tile (array<f16>) and sum_tile (array<f32>).
// test/gpu/matrix_emulated.wgsl has the same functions in plain WGSL, for tests of all the rest where there are no
// matrix units. NOT YET RUN ON HARDWARE: this file is compiled by Dawn, but no adapter with matrix units was there to
// run it.
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;

const SIDE = 16u;
const SUBGROUP = 32u;

alias Left = subgroup_matrix_left<f16, SIDE, SIDE>;
alias Right = subgroup_matrix_right<f16, SIDE, SIDE>;
alias Sum = subgroup_matrix_result<f32, SIDE, SIDE>;

// Number of the thread's subgroup in its workgroup. `l` is the thread's index, `subgroup` its builtin(subgroup_id),
// which the compiler knows to be the same for a whole subgroup, as offsets below have to be.
fn unit_of(l: u32, subgroup: u32) -> u32 { return subgroup; }

// A loop's bound, as it is. (The emulation hides it from a compiler for which unrolling is costly.)
fn times(n: u32) -> u32 { return n; }

// The tile whose element (row, column) is left_tile[at + row * stride + column].
fn load_left(at: u32, stride: u32) -> Left { return subgroupMatrixLoad<Left, row_major>(&left_tile, at, stride); }

// The tile whose element (row, column) is right_tile[at + row * stride + column].
fn load_right(at: u32, stride: u32) -> Right { return subgroupMatrixLoad<Right, row_major>(&right_tile, at, stride); }

// The tile whose element (row, column) is right_tile[at + column * stride + row].
fn load_right_columns(at: u32, stride: u32) -> Right {
  return subgroupMatrixLoad<Right, col_major>(&right_tile, at, stride);
}

fn multiply_add(left: Left, right: Right, sum: Sum) -> Sum {
  return subgroupMatrixMultiplyAccumulate(left, right, sum);
}

// Element (row, column) goes to sum_tile[at + SIDE * row + column].
fn store_sum(at: u32, sum: Sum) { subgroupMatrixStore<row_major>(&sum_tile, at, sum, SIDE); }
