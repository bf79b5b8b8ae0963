// Packs a loop's exact rows of whole groups of tokens (src/codecs/flashloop.ts): what they differ by from the sum of
// the streams of the loops before, which are there already. In a step the oldest exact tokens of a sequence are packed
// when a group of them is beyond those that stay exact; without `full` the groups of the grid are. A workgroup a group
// and row.
// Bindings: 0 params, 1 spans [sequence] (packed tokens, position of the first exact one, exact ones, 0), 2 exact rows
// of f16 in a ring, 3 cache. Run: lla-sim bench --kernel append_streams
#include "small_floats.wgsl"
#include "streams.wgsl"

override PAIRS: u32;   // of a group
const WG = 64u;
const NAN_PAIR = 0x7e007e00u;

struct Params {
  streams: Streams,
  loop_of: u32,
  full: u32,         // exact tokens, the current one included, with which a step packs; 0 in prompts
  first_row: u32,    // cached row of the first sequence's first head
  slots: u32,        // of the ring of exact rows
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> spans: array<vec4u>;
@group(0) @binding(2) var<storage, read> rows: array<u32>;
@group(0) @binding(3) var<storage, read_write> cache: array<u32>;

var<workgroup> pairs: array<vec2f, PAIRS>;   // scale and lowest value before they are rounded
var<private> group_at: u32;                  // first word of the group
var<private> row_at: u32;                    // slot 0 of the exact row, of all rows
var<private> first_token: u32;

// The sum of the streams before.
fn rebuilt(t: u32, channel: u32) -> f32 {
  var x = 0.0;
  for (var loop_of = 0u; loop_of < params.loop_of; loop_of++) {
    let bits = bits_of(loop_of);
    let bit = bits * (t * params.streams.width + channel);
    let code = (cache[group_at + loop_at(params.streams, loop_of) + bit / 32u] >> (bit % 32u)) & ((1u << bits) - 1u);
    let pair = unpack2x16float(
        cache[group_at + pairs_at(params.streams, loop_of) + pair_of(params.streams, t, channel)]);
    x = half(x + half(f32(code) * pair.x + pair.y));
  }
  return x;
}

// What is coded of a token's channel.
fn wanted(t: u32, channel: u32) -> f32 {
  let slot = row_at + (first_token + t) % params.slots;
  let x = unpack2x16float(rows[(slot * params.streams.width + channel) / 2u])[channel % 2u];
  if (params.loop_of == 0u) { return x; }
  return half(x - rebuilt(t, channel));
}

// Workgroups: (group of tokens, head, sequence).
@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) id: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) l: u32
) {
  let s = params.streams;
  var due = true;
  first_token = id.x * GROUP;
  if (params.full > 0u) {
    let span = spans[id.z];
    due = span.z + 1u >= params.full;
    first_token += span.x;
  }
  group_at = (params.first_row + id.z * groups.y + id.y) * s.row_words + first_token / GROUP * s.group_words;
  row_at = (id.z * groups.y + id.y) * params.slots;
  let bits = bits_of(params.loop_of);
  let most = f32((1u << bits) - 1u);
  let pairs_from = group_at + pairs_at(s, params.loop_of);
  if (due) {
    for (var p = l; p < PAIRS; p += WG) {
      let each = s.width / CHANNELS;
      let t0 = select(0u, p / each, s.values == 1u);
      let c0 = select(p, (p % each) * CHANNELS, s.values == 1u);
      var least = wanted(t0, c0);
      var largest = least;
      var bad = is_nan(least);
      for (var i = 1u; i < select(GROUP, CHANNELS, s.values == 1u); i++) {
        let x = wanted(t0 + select(i, 0u, s.values == 1u), c0 + select(0u, i, s.values == 1u));
        bad = bad || is_nan(x);
        least = min(least, x);
        largest = max(largest, x);
      }
      let scale = (largest - least) / most;
      pairs[p] = vec2f(select(scale, 1.0, scale == 0.0), least);
      cache[pairs_from + p] = select(pack2x16float(vec2f(half(pairs[p].x), half(least))), NAN_PAIR, bad);
    }
  }
  workgroupBarrier();
  if (!due) { return; }
  let each = 32u / bits;
  let codes_from = group_at + loop_at(s, params.loop_of);
  for (var w = l; w < GROUP * s.width / each; w += WG) {
    let t = w * each / s.width;
    var word = 0u;
    for (var e = 0u; e < each; e++) {
      let channel = w * each % s.width + e;
      let pair = pairs[pair_of(s, t, channel)];
      word |= u32(clamp(round((wanted(t, channel) - pair.y) / pair.x), 0.0, most)) << (bits * e);
    }
    cache[codes_from + w] = word;
  }
}
