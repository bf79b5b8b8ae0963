// rebuild.wgsl on matrix units: K (rotated) or V (plain) of one layer and loop for all cached tokens, x_t = W c_t + mu,
// into f16 rows. Latents are rounded to f16, products summed in f32; means and rotation are f32. Beyond f16's own range
// latents overflow. A workgroup of 128 threads takes TOKENS slots of one (KV head, sequence), PAIRS rotary pairs at a
// time. Its four subgroups lie 2 along the tokens and 2 along the pairs; a subgroup has both components of its pairs,
// in tile columns c and PAIRS + c, so that it computes them together. Rows in workgroup memory are padded by 8 halves,
// so that 8 of them are in different banks. Bindings: 0 params, 1 keys (latents), 2 weights [KV head][head width][rank,
// padded to even] f16 pairs, 3 means [KV head][head width] f32, 4 spans (attend_rows.wgsl), 5 positions of pinned
// tokens u32 [sequence, or sequence and KV head][slot], 6 turns (rotary.wgsl), 7 rows (output). Run: lla-sim bench
// --kernel rebuild, on an adapter with matrix units. NOT YET RUN ON HARDWARE: see matrix_units.wgsl.
#include "matrix_units.wgsl"
#storage
#include "rotary.wgsl"
#include "rebuild_rows.wgsl"

override TOKENS: u32;   // 32 or 64
override PAIRS: u32;    // 32 or 64
override DEPTH: u32;    // components of the latents a stage: whole units, a multiple of 16

const WG = 128u;
const PADDING = 8u;
const MOST_BLOCK_ROWS = 2u;
const MOST_BLOCKS = 8u;

override STRIDE = DEPTH + PADDING;
override BLOCK_ROWS = TOKENS / 2u / SIDE;
override PAIR_BLOCKS = PAIRS / 2u / SIDE;
override UNITS = DEPTH / UNIT;

var<workgroup> left_tile: array<f16, TOKENS * STRIDE>;         // [token][component]
// [first components of the pairs, then second ones][component]
var<workgroup> right_tile: array<f16, 2u * PAIRS * STRIDE>;
var<workgroup> sum_tile: array<f32, WG / SUBGROUP * 2u * SIDE * SIDE>;

// Components [k0, k0 + DEPTH) of the latents in slots from `first` on; zero beyond the rank.
fn stage_latents(l: u32, latent_row: u32, first: u32, k0: u32) {
  let slots = params.pinned + params.ring;
  for (var i = l; i < TOKENS * UNITS; i += WG) {
    var latent = Unit();
    let unit = k0 / UNIT + i % UNITS;
    if (unit < params.keys.units) {
      latent = load_unit(&keys, params.keys,
          token_at(params.keys, latent_row, slots / TILE_TOKENS, min(first + i / UNITS, slots - 1u)), unit);
    }
    let at = i / UNITS * STRIDE + i % UNITS * UNIT;
    for (var v = 0u; v < UNIT_VECS; v++) {
      for (var e = 0u; e < 4u; e++) { left_tile[at + 4u * v + e] = f16(latent[v][e]); }
    }
  }
}

// The same components of the rows of W that make pairs m0 on; zero beyond the rank and the head.
fn stage_weights(l: u32, m0: u32, k0: u32, head: u32) {
  let words = (params.rank + 1u) / 2u;
  for (var i = l; i < PAIRS * DEPTH; i += WG) {
    let column = i / (DEPTH / 2u);
    let m = m0 + column % PAIRS;
    let component = k0 + 2u * (i % (DEPTH / 2u));
    var w = vec2<f16>();
    if (m < params.pairs && component < params.rank) {
      w = bitcast<vec2<f16>>(weights[(head + pair_rows(m, params.pairs, params.adjacent)[column / PAIRS]) * words +
          component / 2u]);
      if (component + 1u == params.rank) { w.y = 0.0h; }
    }
    let at = column * STRIDE + component - k0;
    right_tile[at] = w.x;
    right_tile[at + 1u] = w.y;
  }
}

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group_id: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) l: u32,
  @builtin(subgroup_id) subgroup: u32
) {
  let unit = unit_of(l, subgroup);
  let unit_token = unit % 2u * BLOCK_ROWS * SIDE;
  let unit_pair = unit / 2u * PAIR_BLOCKS * SIDE;
  let row = group_id.z * groups.y + group_id.y;
  let latent_row = select(row, group_id.z, params.row_shared == 1u);
  let position_row = select(group_id.z, row, params.positions_by_head == 1u);
  let head = group_id.y * 2u * params.pairs;
  let span = spans[group_id.z];
  let first = group_id.x * TOKENS;
  if (!in_use(span, first, TOKENS)) { return; }
  var sums: array<Sum, MOST_BLOCKS>;   // [component of the pair][block of pairs][block of tokens]
  for (var m0 = 0u; m0 < params.pairs; m0 += PAIRS) {
    for (var i = 0u; i < times(MOST_BLOCKS); i++) { sums[i] = Sum(); }
    for (var k0 = 0u; k0 < params.rank; k0 += DEPTH) {
      workgroupBarrier();
      stage_latents(l, latent_row, first, k0);
      stage_weights(l, m0, k0, head);
      workgroupBarrier();
      for (var k = 0u; k < times(DEPTH); k += SIDE) {
        var left: array<Left, MOST_BLOCK_ROWS>;
        for (var a = 0u; a < times(BLOCK_ROWS); a++) {
          left[a] = load_left((unit_token + a * SIDE) * STRIDE + k, STRIDE);
        }
        for (var b = 0u; b < times(2u * PAIR_BLOCKS); b++) {
          let column = b / PAIR_BLOCKS * PAIRS + unit_pair + b % PAIR_BLOCKS * SIDE;
          let right = load_right_columns(column * STRIDE + k, STRIDE);
          for (var a = 0u; a < times(BLOCK_ROWS); a++) {
            sums[b * BLOCK_ROWS + a] = multiply_add(left[a], right, sums[b * BLOCK_ROWS + a]);
          }
        }
      }
    }
    // A block of tokens and pairs of every subgroup at a time. Behind the barrier, any 32 threads may finish any
    // subgroup's.
    let writer = l / SUBGROUP;
    for (var a = 0u; a < BLOCK_ROWS; a++) {
      for (var b = 0u; b < PAIR_BLOCKS; b++) {
        workgroupBarrier();
        store_sum(2u * unit * SIDE * SIDE, sums[b * BLOCK_ROWS + a]);
        store_sum((2u * unit + 1u) * SIDE * SIDE, sums[(PAIR_BLOCKS + b) * BLOCK_ROWS + a]);
        workgroupBarrier();
        // Two neighbouring pairs a thread: their components lie in shared words.
        for (var i = l % SUBGROUP; i < SIDE * SIDE / 2u; i += SUBGROUP) {
          let slot = first + (writer % 2u * BLOCK_ROWS + a) * SIDE + i / (SIDE / 2u);
          let m = m0 + (writer / 2u * PAIR_BLOCKS + b) * SIDE + 2u * (i % (SIDE / 2u));
          if (slot < params.pinned + params.ring && m < params.pairs) {
            let token = cached(span, position_row, slot);
            let at = 2u * writer * SIDE * SIDE + 2u * i;
            if (token.here) {
              store_pairs(row, slot, m, finished(head, m, at, token.position),
                  finished(head, m + 1u, at + 1u, token.position));
            }
          }
        }
      }
    }
  }
}

// Pair m from its two sums: with its mean, and rotated where pairs are. Beyond the head it is the last pair's.
fn finished(head: u32, m: u32, at: u32, position: u32) -> vec2f {
  let pair = min(m, params.pairs - 1u);
  let means_at = head + pair_rows(pair, params.pairs, params.adjacent);
  let x = vec2f(sum_tile[at], sum_tile[at + SIDE * SIDE]) + vec2f(means[means_at.x], means[means_at.y]);
  if (params.rotate == 0u) { return x; }
  return rotated(x, turn_at(&turns, params.pairs, position, pair));
}
