// Codes the rows of all loops that share an anchor, as src/codecs/residual.ts has it, and writes them to the cache
// (residual.layout.ts). A workgroup does the new tokens of one tile of a row one after the other, as tokens of a tile
// share words.
// Bindings: 0 params, 1 starts: position of each sequence's first new token u32, 2 rows f32 (see row_offset), 3 cache.
// Run: lla-sim bench --kernel append_residual
#include "small_floats.wgsl"

override WIDTH: u32;           // channels of a head, a multiple of 16
override ANCHOR_BITS: u32;     // 4 or 2
override ANCHOR_GROUP: u32;    // channels of a scale: 32 or 16
override RESIDUAL_GROUP: u32;
const WG = 64u;
const TILE = 32u;
const RESIDUAL_BITS = 2u;
const NOT_A_NUMBER = 0x7fu;    // a scale

struct Params {
  loops: u32,
  chunk: u32,            // new tokens of a sequence
  tiles: u32,            // of a row
  tile_words: u32,
  anchor_words: u32,     // of a token's codes
  anchor_pairs_at: u32,
  residual_words: u32,   // of a token's codes
  codes_at: u32,         // of the first loop, and from a loop to the next
  codes_each: u32,
  pairs_at: u32,
  pairs_each: u32,
  row_offset: u32,       // float of token 0, loop 0, head 0; heads follow each other
  row_stride: u32,       // floats from a token to the next, through all sequences
  loop_stride: u32,
  first: u32,            // added to every start
  first_row: u32,        // cached row of the first sequence's first head
  first_start: u32,      // where in `starts` the sequences begin
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> starts: array<u32>;
@group(0) @binding(2) var<storage, read> rows: array<f32>;
@group(0) @binding(3) var<storage, read_write> cache: array<u32>;

var<workgroup> row: array<f32, WIDTH>;      // what is coded: the anchor, then what it leaves of a loop
var<workgroup> anchor: array<f32, WIDTH>;   // R
var<workgroup> pairs: array<u32, WIDTH>;    // of each group: scale in the high byte, offset
var<workgroup> parts: array<vec2f, WG>;

// Scale and offset of a group of `row`.
fn pair_of(group: u32, size: u32, bits: u32) -> u32 {
  var least = row[group * size];
  var most = least;
  var bad = false;
  for (var i = group * size; i < (group + 1u) * size; i++) {
    bad = bad || is_nan(row[i]);
    least = min(least, row[i]);
    most = max(most, row[i]);
  }
  let kept = select(1.0, 0.9, bits == 2u);
  let range = kept * (most - least);
  let low = select(least, 0.5 * (least + most) - 0.5 * range, bits == 2u);
  let scale = select(fp8_quotient(range, f32((1u << bits) - 1u)), NOT_A_NUMBER, bad);
  return (scale << 8u) | fp8_code(select(low, 0.0, bad));
}

// Nearest code, a half rounds down. Division may be off by units of the last place, products with halves are not.
fn code_of(x: f32, pair: vec2f, bits: u32) -> u32 {
  if (pair.x == 0.0) { return 0u; }
  let levels = f32((1u << bits) - 1u);
  let above = x - pair.y;
  let code = clamp(ceil(above / pair.x - 0.5), 0.0, levels);
  let down = code > 0.0 && above <= (code - 0.5) * pair.x;
  let up = code < levels && above > (code + 0.5) * pair.x;
  return u32(code + select(0.0, 1.0, up) - select(0.0, 1.0, down));
}

fn pair_value(group: u32) -> vec2f {
  let scale = pairs[group] >> 8u;
  return vec2f(select(fp8_value(scale), bitcast<f32>(0x7fc00000u | pairs[group]), scale == NOT_A_NUMBER),
      fp8_value(pairs[group] & 0xffu));
}

fn put_field(at: u32, t: u32, value: u32) {
  let word = at + t / 2u;
  let shift = 16u * (t % 2u);
  cache[word] = (cache[word] & ~(0xffffu << shift)) | (value << shift);
}

// Codes `row`. The same thread has a group's field in every token.
fn store_codes(l: u32, t: u32, codes_at: u32, words: u32, pairs_at: u32, size: u32, bits: u32) {
  for (var g = l; g < WIDTH / size; g += WG) {
    pairs[g] = pair_of(g, size, bits);
    put_field(pairs_at + g * (TILE / 2u), t, pairs[g]);
  }
  workgroupBarrier();
  let per_word = 32u / bits;
  for (var w = l; w < words; w += WG) {
    var word = 0u;
    let pair = pair_value(w * per_word / size);
    for (var e = 0u; e < per_word; e++) { word |= code_of(row[w * per_word + e], pair, bits) << (bits * e); }
    cache[codes_at + t * words + w] = word;
  }
}

// Sums of row · anchor and anchor · anchor, in all threads.
fn dots(l: u32) -> vec2f {
  var sum = vec2f(0.0);
  for (var i = l; i < WIDTH; i += WG) { sum += vec2f(row[i], anchor[i]) * anchor[i]; }
  parts[l] = sum;
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    if (l < half) { parts[l] += parts[l + half]; }
    workgroupBarrier();
  }
  return parts[0];
}

fn load_row(l: u32, at: u32) {
  workgroupBarrier();
  for (var i = l; i < WIDTH; i += WG) { row[i] = rows[at + i]; }
  workgroupBarrier();
}

// Workgroups: (tile, head, sequence).
@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) id: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) l: u32
) {
  let start = starts[params.first_start + id.z] + params.first;
  let tile = start / TILE + id.x;
  let begin = max(start, tile * TILE);
  let end = min(start + params.chunk, (tile + 1u) * TILE);
  let tile_at = ((params.first_row + id.z * groups.y + id.y) * params.tiles + tile) * params.tile_words;
  for (var position = begin; position < end; position++) {
    let t = position % TILE;
    let row_at = params.row_offset + (id.z * params.chunk + position - start) * params.row_stride + id.y * WIDTH;
    load_row(l, row_at + (params.loops - 1u) * params.loop_stride);
    store_codes(l, t, tile_at, params.anchor_words, tile_at + params.anchor_pairs_at, ANCHOR_GROUP, ANCHOR_BITS);
    for (var i = l; i < WIDTH; i += WG) {
      let pair = pair_value(i / ANCHOR_GROUP);
      anchor[i] = bf16(fma(f32(code_of(row[i], pair, ANCHOR_BITS)), pair.x, pair.y));
    }
    for (var loop_of = 0u; loop_of + 1u < params.loops; loop_of++) {
      load_row(l, row_at + loop_of * params.loop_stride);
      let both = dots(l);
      let coefficient = select(bf16(both.x / both.y), 0.0, both.y == 0.0);
      for (var i = l; i < WIDTH; i += WG) { row[i] = bf16(row[i] - bf16(coefficient * anchor[i])); }
      workgroupBarrier();
      let pairs_at = tile_at + params.pairs_at + loop_of * params.pairs_each;
      store_codes(l, t, tile_at + params.codes_at + loop_of * params.codes_each, params.residual_words, pairs_at,
          RESIDUAL_GROUP, RESIDUAL_BITS);
      if (l == 0u) {
        put_field(pairs_at + (WIDTH / RESIDUAL_GROUP) * (TILE / 2u), t, bitcast<u32>(coefficient) >> 16u);
      }
    }
  }
}
