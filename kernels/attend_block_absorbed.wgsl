enable subgroups;
// Split-KV decode attention with full RoPE straight on latents: K is never rebuilt. In a block of 2 HALF positions centred on n0, with
// offset delta and the pairs' vectors turned to the centre (A_m, B_m of block_basis.wgsl),
//   s(n0 + delta) = sum_m (cos(theta_m delta) A_m + sin(theta_m delta) B_m) . c
// The tables cos(theta_m delta) and sin(theta_m delta) are the same in every block and numerically of low rank, so that a few functions
// phi_j of the offset with a vector of latent components each (the block's basis) stand for all pairs. Even and odd sums P and Q serve
// both signs of an offset: u(+delta) = P + Q, u(-delta) = P - Q.
//
// Every thread keeps phi at OFFSETS offsets of its own, in all blocks that it meets; eight threads are a stream of neighbouring offsets,
// the streams of a way cover a block, and WAYS blocks are taken at a time. Basis vectors are the same for a whole stream. On a software
// adapter eight threads load one each and hand it round (HANDED): it has no cheap load of one address for all threads. There is no
// barrier before finish_rows. Blocks are counted from the run's first token, and no split starts inside a block.
// Bindings: 0 params, 1 basis [query head][block][quad of components, then the mean of the keys][function], 2 keys (latents), 3 values (latents), 4 partials, 5 spans, 6 scores, 7 functions: phi [offset][quads of even functions, then of odd ones].
// Run: lla-sim bench --kernel attend_block_absorbed
#include "attend_rows.wgsl"

override HALF: u32;          // half a block, 8 * OFFSETS * streams
override WAYS: u32;          // blocks at a time
override OFFSETS: u32;       // offsets of a thread, at most MOST_OFFSETS
override EVEN: u32;          // even functions, at most 4 * MOST_QUADS
override ODD: u32;           // odd functions
override HANDED: u32;        // 1: basis vectors are handed round in groups of eight threads, 0: each thread loads them
const MOST_OFFSETS = 8u;
const MOST_QUADS = 8u;       // of functions of a parity

@group(0) @binding(1) var<storage, read> basis: array<vec4f>;
@group(0) @binding(7) var<storage, read> functions: array<vec4f>;

fn blocks_of_sequence() -> u32 { return params.spare0; }

var<private> even_at: array<vec4f, MOST_OFFSETS * MOST_QUADS>;   // phi: [offset of this thread][quad of even functions]
var<private> odd_at: array<vec4f, MOST_OFFSETS * MOST_QUADS>;
var<private> even: array<vec4f, MOST_OFFSETS>;
var<private> odd: array<vec4f, MOST_OFFSETS>;
var<private> after_units: array<Unit, MOST_OFFSETS>;
var<private> before_units: array<Unit, MOST_OFFSETS>;
var<private> even_mean: array<f32, MOST_OFFSETS>;
var<private> odd_mean: array<f32, MOST_OFFSETS>;
var<private> sides: array<f32, 2u * MOST_OFFSETS>;    // scores of this thread's tokens after the centre, then before it
var<private> lane: u32;                               // of the eight of a stream

// Function j's basis vector at all offsets of this thread. `j` is a constant wherever this is called: arrays that are indexed at run
// time are not in registers.
fn add_function(j: u32, v: vec4f) {
  for (var k = 0u; k < OFFSETS; k++) {
    if (j < EVEN) { even[k] = fma(vec4f(even_at[k * MOST_QUADS + j / 4u][j % 4u]), v, even[k]); }
    else { odd[k] = fma(vec4f(odd_at[k * MOST_QUADS + (j - EVEN) / 4u][(j - EVEN) % 4u]), v, odd[k]); }
  }
}

fn add_eight(at: u32, first: u32) {
  if (first >= EVEN + ODD) { return; }
  if (HANDED == 0u) {
    for (var j = first; j < min(first + 8u, EVEN + ODD); j++) { add_function(j, basis[at + j]); }
    return;
  }
  let held = basis[at + first + lane];
  if (first + 0u < EVEN + ODD) { add_function(first + 0u, subgroupBroadcast(held, 0u)); }
  if (first + 1u < EVEN + ODD) { add_function(first + 1u, subgroupBroadcast(held, 1u)); }
  if (first + 2u < EVEN + ODD) { add_function(first + 2u, subgroupBroadcast(held, 2u)); }
  if (first + 3u < EVEN + ODD) { add_function(first + 3u, subgroupBroadcast(held, 3u)); }
  if (first + 4u < EVEN + ODD) { add_function(first + 4u, subgroupBroadcast(held, 4u)); }
  if (first + 5u < EVEN + ODD) { add_function(first + 5u, subgroupBroadcast(held, 5u)); }
  if (first + 6u < EVEN + ODD) { add_function(first + 6u, subgroupBroadcast(held, 6u)); }
  if (first + 7u < EVEN + ODD) { add_function(first + 7u, subgroupBroadcast(held, 7u)); }
}

// The same of the mean of the keys, which is a number a function.
fn add_mean(j: u32, v: f32) {
  for (var k = 0u; k < OFFSETS; k++) {
    if (j < EVEN) { even_mean[k] = fma(even_at[k * MOST_QUADS + j / 4u][j % 4u], v, even_mean[k]); }
    else { odd_mean[k] = fma(odd_at[k * MOST_QUADS + (j - EVEN) / 4u][(j - EVEN) % 4u], v, odd_mean[k]); }
  }
}

fn add_eight_means(at: u32, first: u32) {
  if (first >= EVEN + ODD) { return; }
  if (HANDED == 0u) {
    for (var j = first; j < min(first + 8u, EVEN + ODD); j++) { add_mean(j, basis[at + j].x); }
    return;
  }
  let held = basis[at + first + lane].x;
  if (first + 0u < EVEN + ODD) { add_mean(first + 0u, subgroupBroadcast(held, 0u)); }
  if (first + 1u < EVEN + ODD) { add_mean(first + 1u, subgroupBroadcast(held, 1u)); }
  if (first + 2u < EVEN + ODD) { add_mean(first + 2u, subgroupBroadcast(held, 2u)); }
  if (first + 3u < EVEN + ODD) { add_mean(first + 3u, subgroupBroadcast(held, 3u)); }
  if (first + 4u < EVEN + ODD) { add_mean(first + 4u, subgroupBroadcast(held, 4u)); }
  if (first + 5u < EVEN + ODD) { add_mean(first + 5u, subgroupBroadcast(held, 5u)); }
  if (first + 6u < EVEN + ODD) { add_mean(first + 6u, subgroupBroadcast(held, 6u)); }
  if (first + 7u < EVEN + ODD) { add_mean(first + 7u, subgroupBroadcast(held, 7u)); }
}

// Quad `quad` of a row, from the unit that holds it: zero past the row's end. A choice between constants, again for the registers' sake.
fn quad_of(unit: Unit, quad: u32) -> vec4f {
  var v = unit[0];
  for (var i = 1u; i < UNIT_VECS; i++) { v = select(v, unit[i], i == quad % UNIT_VECS); }
  if (EDGES == 0u) { return v; }
  return select(vec4f(0.0), v, vec4u(4u * quad) + vec4u(0u, 1u, 2u, 3u) < vec4u(params.key_width));
}

// Adds a quad of components, which the units hold, to the scores.
fn add_quad(at: u32, quad: u32) {
  for (var k = 0u; k < OFFSETS; k++) {
    even[k] = vec4f(0.0);
    odd[k] = vec4f(0.0);
  }
  add_eight(at, 0u);
  add_eight(at, 8u);
  add_eight(at, 16u);
  add_eight(at, 24u);
  add_eight(at, 32u);
  add_eight(at, 40u);
  add_eight(at, 48u);
  add_eight(at, 56u);
  for (var k = 0u; k < OFFSETS; k++) {
    sides[k] += dot(even[k] + odd[k], quad_of(after_units[k], quad));
    sides[OFFSETS + k] += dot(even[k] - odd[k], quad_of(before_units[k], quad));
  }
}

// The scores of this thread's tokens in the block that starts at token `first` of the run.
fn score_block(place: Place, block: u32, own: u32) {
  let first = block * 2u * HALF;
  var after: array<Token, MOST_OFFSETS>;
  var before: array<Token, MOST_OFFSETS>;
  for (var k = 0u; k < OFFSETS; k++) {
    // Tokens past the end repeat the last one; their scores are not used.
    after[k] = token_at(params.keys, place.row, tiles_of_row(), slot_of(place, min(first + HALF + own + 8u * k, place.end - 1u)));
    before[k] = token_at(params.keys, place.row, tiles_of_row(), slot_of(place, min(first + HALF - 1u - own - 8u * k, place.end - 1u)));
    even_mean[k] = 0.0;
    odd_mean[k] = 0.0;
  }
  let quads = (params.key_width + 3u) / 4u;
  let at = (place.first_head * blocks_of_sequence() + block) * (quads + 1u) * (EVEN + ODD);
  add_eight_means(at + quads * (EVEN + ODD), 0u);
  add_eight_means(at + quads * (EVEN + ODD), 8u);
  add_eight_means(at + quads * (EVEN + ODD), 16u);
  add_eight_means(at + quads * (EVEN + ODD), 24u);
  add_eight_means(at + quads * (EVEN + ODD), 32u);
  add_eight_means(at + quads * (EVEN + ODD), 40u);
  add_eight_means(at + quads * (EVEN + ODD), 48u);
  add_eight_means(at + quads * (EVEN + ODD), 56u);
  for (var k = 0u; k < OFFSETS; k++) {
    sides[k] = even_mean[k] + odd_mean[k];
    sides[OFFSETS + k] = even_mean[k] - odd_mean[k];
  }
  for (var unit = 0u; unit * UNIT_VECS < quads; unit++) {
    for (var k = 0u; k < OFFSETS; k++) {
      after_units[k] = load_unit(&keys, params.keys, after[k], unit);
      before_units[k] = load_unit(&keys, params.keys, before[k], unit);
    }
    for (var quad = unit * UNIT_VECS; quad < min((unit + 1u) * UNIT_VECS, quads); quad++) {
      add_quad(at + quad * (EVEN + ODD), quad);
    }
  }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) l: u32, @builtin(subgroup_invocation_id) id: u32) {
  let place = place_of(group_id, groups);
  lane = id % 8u;
  let in_way = l % (HALF / OFFSETS);
  let own = in_way / 8u * 8u * OFFSETS + lane;   // this thread's first offset
  for (var k = 0u; k < OFFSETS; k++) {
    for (var q = 0u; q < (EVEN + 3u) / 4u; q++) { even_at[k * MOST_QUADS + q] = functions[(own + 8u * k) * ((EVEN + 3u) / 4u + (ODD + 3u) / 4u) + q]; }
    for (var q = 0u; q < (ODD + 3u) / 4u; q++) { odd_at[k * MOST_QUADS + q] = functions[(own + 8u * k) * ((EVEN + 3u) / 4u + (ODD + 3u) / 4u) + (EVEN + 3u) / 4u + q]; }
  }
  start_rows();
  // Up, as a split past the last token is empty and begins anywhere.
  let begin = (place.begin + 2u * HALF - 1u) / (2u * HALF);
  let end = (place.end + 2u * HALF - 1u) / (2u * HALF);
  for (var step = begin; step < end; step += WAYS) {
    let block = step + l / (HALF / OFFSETS);
    score_block(place, min(block, end - 1u), own);
    // Row groups take tokens of the stream one after the other, eight neighbours at a time.
    for (var j = 0u; j < 2u * OFFSETS * params.once; j++) {
      let after = j < OFFSETS;
      for (var r = 0u; r < WIDE * params.once; r++) {
        let of_eight = r * (8u / WIDE) + lane / WIDE;
        let s = subgroupShuffle(sides[0], id - lane + of_eight);
        let offset = own - lane + 8u * select(j - OFFSETS, j, after) + of_eight;
        let i = block * 2u * HALF + select(HALF - 1u - offset, HALF + offset, after);
        fold_row(l, place, min(i, place.end - 1u), vec4f(select(LOWEST, params.scale * s, i < place.end), LOWEST, LOWEST, LOWEST));
      }
      for (var k = 0u; k < 2u * OFFSETS - 1u; k++) { sides[k] = sides[k + 1u]; }
    }
  }
  finish_rows(l, place);
}
