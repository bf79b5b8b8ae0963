// Puts the elements of a tensor where a product reads them: element (g, row, column) of a packed matrix
// [group][row][pairs] is element source + g source_group + row source_row + (column - column0) source_column of the
// tensor. Other columns of the matrix keep theirs.
//   MODE 0: made from a seed, word by word as src/decoder/weights.ts makes them
//   MODE 1: 1 where the index in a stacked vector of `width` is that in its latent of `rank`, else 0
//   MODE 2: read from `staged`, which holds the tensor from element `staged_from` on
// Bindings: 0 params, 1 staged f32 (any buffer in other modes), 2 target. Run: when a decoder is opened.
override MODE: u32;
override HALVES: u32;   // 1: f16 pairs, 0: f32
const WG = 256u;

struct Params {
  words: u32,          // groups * rows * span: pairs that are visited
  rows: u32,
  pairs: u32,          // of a row of the matrix
  first_pair: u32,     // the first that is visited, and how many of a row
  span: u32,
  column0: u32,
  columns: u32,
  source: u32,
  source_group: u32,
  source_row: u32,
  source_column: u32,
  seed_first: u32,
  seed_second: u32,
  levels: u32,
  base: f32,
  step: f32,
  width: u32,
  rank: u32,
  staged_from: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> staged: array<f32>;
@group(0) @binding(2) var<storage, read_write> target_words: array<u32>;

#include "hash.wgsl"

fn element(index: u32) -> f32 {
  if (MODE == 0u) {
    let level = ((mix_bits(mix_bits(index ^ params.seed_first) + params.seed_second) >> 16u) * params.levels) >> 16u;
    return params.base + params.step * f32(i32(2u * level + 1u) - i32(params.levels));
  }
  if (MODE == 1u) { return select(0.0, 1.0, (index / params.rank) % params.width == index % params.rank); }
  return staged[index - params.staged_from];
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  for (var i = id.x; i < params.words; i += groups.x * WG) {
    let pair = params.first_pair + i % params.span;
    let group_row = i / params.span;
    let at = group_row * params.pairs + pair;
    let source = params.source + (group_row / params.rows) * params.source_group +
        (group_row % params.rows) * params.source_row;
    for (var e = 0u; e < 2u; e++) {
      let column = 2u * pair + e;
      if (column < params.column0 || column >= params.column0 + params.columns) { continue; }
      let value = element(source + (column - params.column0) * params.source_column);
      if (HALVES == 1u) {
        let half = pack2x16float(vec2f(value, 0.0)) & 0xffffu;
        target_words[at] = (target_words[at] & (0xffff0000u >> (16u * e))) | (half << (16u * e));
      } else {
        target_words[2u * at + e] = bitcast<u32>(value);
      }
    }
  }
}
