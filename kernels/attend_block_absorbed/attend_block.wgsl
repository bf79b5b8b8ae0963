// Shared by both kernels of block-absorbed attention: the blocks of a split, and the sum over their value rows.
//
// Every thread has the tokens at OFFSETS offsets of either sign in all its blocks. Eight threads are a stream of
// neighbouring offsets, the streams of a way cover a block, and WAYS blocks are processed at a time. There is no
// barrier before finish_rows. Blocks are counted from the run's first token, and no split starts inside a block. A
// kernel has score_block, which leaves the scores of this thread's tokens in `sides`. Bindings: 0 params, 1 basis
// [query head][block][quad of components, then the mean of the keys][function], 2 keys (latents), 3 values (latents), 4
// partials, 5 spans, 6 scores, 7 functions: phi [offset][quads of even functions, then of odd ones]. Run: lla-sim bench
// --kernel attend_block_absorbed
#storage
#include "attend_rows.wgsl"

override HALF: u32;          // half a block, 8 * OFFSETS * streams
override WAYS: u32;          // blocks at a time
override OFFSETS: u32;       // offsets of a thread, at most MOST_OFFSETS
override EVEN: u32;          // even functions, at most 4 * MOST_QUADS
override ODD: u32;           // odd functions
const MOST_OFFSETS = 8u;
const MOST_QUADS = 8u;       // of functions of a parity

@group(0) @binding(1) var<storage, read> basis: array<vec4f>;
@group(0) @binding(7) var<storage, read> functions: array<vec4f>;

var<private> even_at: array<vec4f, MOST_OFFSETS * MOST_QUADS>;   // phi: [offset of this thread][quad of even functions]
var<private> odd_at: array<vec4f, MOST_OFFSETS * MOST_QUADS>;
var<private> after: array<Token, MOST_OFFSETS>;                  // this thread's tokens after the centre
var<private> before: array<Token, MOST_OFFSETS>;
var<private> sides: array<f32, 2u * MOST_OFFSETS>;               // their scores, those after the centre first
var<private> lane: u32;                                          // of the eight of a stream

// Vec4s of a query head's basis of one block, before it.
fn basis_of(place: Place, block: u32) -> u32 {
  return (place.first_head * params.blocks + block) * (quads_of_key() + 1u) * (EVEN + ODD);
}

fn quads_of_key() -> u32 { return (params.key_width + 3u) / 4u; }

// Token of the run at the offset that a thread's side j has: `offset` is that of its side 0.
fn token_of(block: u32, offset: u32, j: u32) -> u32 {
  let from_centre = offset + 8u * select(j - OFFSETS, j, j < OFFSETS);
  return block * 2u * HALF + select(HALF - 1u - from_centre, HALF + from_centre, j < OFFSETS);
}

// Finds this thread's tokens of a block. Those past the end repeat the last one; their scores are not used.
fn find_tokens(place: Place, block: u32, own: u32) {
  for (var k = 0u; k < OFFSETS; k++) {
    after[k] = token_at(params.keys, place.row, tiles_of_row(),
        slot_of(place, min(token_of(block, own, k), place.end - 1u)));
    before[k] = token_at(params.keys, place.row, tiles_of_row(),
        slot_of(place, min(token_of(block, own, OFFSETS + k), place.end - 1u)));
  }
}

// Turns the scores into weights under the largest score of the stream so far, and rescales the earlier sums.
fn weigh_block(place: Place, block: u32, own: u32) {
  var peak = top.x;
  for (var j = 0u; j < 2u * OFFSETS; j++) {
    let i = token_of(block, own, j);
    sides[j] = select(LOWEST, params.scale * sides[j], i < place.end);
    peak = max(peak, sides[j]);
    if (SCORES == 1u && i < place.end) {
      scores[place.first_head * (params.pinned + params.ring) + slot_of(place, i)] = sides[j];
    }
  }
  for (var step = 1u; step < 8u; step *= 2u) { peak = max(peak, subgroupShuffleXor(peak, step)); }
  let fade = exp2(max(top.x - peak, -200.0));
  top.x = peak;
  mass.x *= fade;
  for (var k = 0u; k < VALUE_EACH * UNIT_VECS; k++) { sums[k] *= fade; }
  // No bound on s - peak: it would turn a NaN into a weight of 0.
  for (var j = 0u; j < 2u * OFFSETS; j++) { sides[j] = select(exp2(sides[j] - peak), 0.0, sides[j] <= LOWEST); }
}

// Adds the value rows of a block. Row groups take tokens of the stream one after the other, eight neighbours at a time.
fn fold_block(l: u32, id: u32, place: Place, block: u32, own: u32) {
  weigh_block(place, block, own);
  for (var j = 0u; j < 2u * OFFSETS * params.once; j++) {
    for (var r = 0u; r < WIDE * params.once; r++) {
      let of_eight = r * (8u / WIDE) + lane / WIDE;
      let p = subgroupShuffle(sides[0], id - lane + of_eight);
      let i = min(token_of(block, own - lane + of_eight, j), place.end - 1u);
      let token = token_at(params.values, place.row, tiles_of_row(), slot_of(place, i));
      mass.x += p;
      for (var k = 0u; k < VALUE_EACH; k++) {
        let v = load_unit(&values, params.values, token, unit_of(params.values, l % WIDE + WIDE * k));
        for (var e = 0u; e < UNIT_VECS; e++) { sums[k * UNIT_VECS + e] = fma(vec4f(p), v[e], sums[k * UNIT_VECS + e]); }
      }
    }
    for (var k = 0u; k < 2u * OFFSETS - 1u; k++) { sides[k] = sides[k + 1u]; }
  }
}

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group_id: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) l: u32,
  @builtin(subgroup_invocation_id) id: u32
) {
  let place = place_of(group_id, groups);
  lane = id % 8u;
  let in_way = l % (HALF / OFFSETS);
  let own = in_way / 8u * 8u * OFFSETS + lane;   // this thread's first offset
  for (var k = 0u; k < OFFSETS; k++) {
    for (var q = 0u; q < (EVEN + 3u) / 4u; q++) {
      even_at[k * MOST_QUADS + q] = functions[(own + 8u * k) * ((EVEN + 3u) / 4u + (ODD + 3u) / 4u) + q];
    }
    for (var q = 0u; q < (ODD + 3u) / 4u; q++) {
      odd_at[k * MOST_QUADS + q] = functions[(own + 8u * k) * ((EVEN + 3u) / 4u + (ODD + 3u) / 4u) + (EVEN + 3u) / 4u +
          q];
    }
  }
  start_rows();
  // Up, as a split past the last token is empty and begins anywhere.
  let begin = (place.begin + 2u * HALF - 1u) / (2u * HALF);
  let end = (place.end + 2u * HALF - 1u) / (2u * HALF);
  for (var step = begin; step < end; step += WAYS) {
    let block = step + l / (HALF / OFFSETS);
    find_tokens(place, min(block, end - 1u), own);
    score_block(basis_of(place, min(block, end - 1u)));
    fold_block(l, id, place, block, own);
  }
  finish_rows(l, place);
}
