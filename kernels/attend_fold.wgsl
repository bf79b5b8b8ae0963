// Shared by the split-KV decode kernels (attend, attend_rebuild, attend_block_absorbed): the range of a split, the online
// softmax over tiles of tokens, and the sum over value rows. A kernel writes scores of a tile (scaled, base-2 logarithm)
// to `score` and calls fold_tile.
//
//   m' = max(m, max_t s_t)    l' = l 2^(m - m') + sum_t 2^(s_t - m')    o' = o 2^(m - m') + sum_t 2^(s_t - m') v_t
//
// A workgroup is one (split, KV head, sequence). `group` query heads share a cached row; they are taken LANES at a time so
// that the row is read once for all of them (once for each 16 where there are more).
// Partials, [sequence][query head][split][value width + 2] f32: o (not yet divided by l), m (base 2), l.
#include "cache_layout.wgsl"

override WG: u32;            // threads of a workgroup, at least 16
override TILE: u32;          // tokens folded at a time
override LANES: u32;         // 1, or a multiple of 4 up to 16
override QUADS: u32;         // ceil(LANES / 4)
override STEP_LANES: u32;    // min(4, LANES)
override FOLD: u32;          // WG * max(LANES, 2 STEP_LANES)

// Shapes are uniforms where no array depends on them, so that one pipeline serves all contexts, ranks and groups.
struct Params {
  context: u32,       // cached tokens
  capacity: u32,      // tokens reserved for a row, a multiple of 32
  split_tokens: u32,  // tokens of a split, a multiple of 32
  scale: f32,         // of a score, times log2(e)
  once: u32,          // 1; as a factor of a loop's bound it keeps compilers from unrolling, which costs software drivers seconds
  row_shared: u32,    // 1: all KV heads of a sequence read the same cached row (LLA-2D, mla-head)
  group: u32,         // query heads that read the same cached row
  key_pairs: u32,     // half the width of a key row, or of a key latent
  value_pairs: u32,   // half the width of a value row
  token_lanes: u32,   // threads that share a value pair: max(1, WG / value_pairs)
  branch_pairs: u32,  // half the width of the rotary branch, 0 without
  branch_shared: u32, // 1: all KV heads of a sequence read the same branch row
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> keys: array<Pair>;
@group(0) @binding(3) var<storage, read> values: array<Pair>;
@group(0) @binding(4) var<storage, read_write> partials: array<f32>;

const LOWEST = -3.0e38;      // stands for minus infinity, which WGSL may assume away
const REDUCERS = 8u;         // entries that the first of the two steps of a reduction leaves of a lane

var<workgroup> score: array<f32, TILE * LANES>;   // [token][lane]
var<workgroup> fold: array<f32, FOLD>;            // [lane][thread] while a reduction is under way
var<workgroup> result: array<f32, 16>;            // [lane]
var<private> top: array<vec4f, 4>;                // running maximum of each lane, the same in all threads
var<private> mass: array<vec4f, 4>;               // this thread's share of each lane's running sum

// Uniform over the workgroup, so it must not hold anything of the thread: barriers stand in loops over it.
struct Place {
  row: u32,          // cached row: sequence * kvHeads + head, or the sequence if its heads share a row
  first_head: u32,   // first query head of this KV head, over all sequences
  split: u32,
  splits: u32,
  begin: u32,        // tokens [begin, end)
  end: u32,
}

fn place_of(group_id: vec3u, groups: vec3u) -> Place {
  let head = group_id.z * groups.y + group_id.y;
  let row = select(head, group_id.z, params.row_shared == 1u);
  let begin = min(group_id.x * params.split_tokens, params.context);
  let end = min(begin + params.split_tokens, params.context);
  return Place(row, head * params.group, group_id.x, groups.x, begin, end);
}

fn start_lanes() {
  for (var q = 0u; q < QUADS; q++) {
    top[q] = vec4f(LOWEST);
    mass[q] = vec4f(0.0);
  }
}

fn score_quad(token: u32, quad: u32) -> vec4f {
  if (LANES == 1u) { return vec4f(score[token]); }
  let at = token * LANES + quad * 4u;
  return vec4f(score[at], score[at + 1u], score[at + 2u], score[at + 3u]);
}

fn result_quad(quad: u32) -> vec4f {
  if (LANES == 1u) { return vec4f(result[0]); }
  return vec4f(result[4u * quad], result[4u * quad + 1u], result[4u * quad + 2u], result[4u * quad + 3u]);
}

fn partial_index(place: Place, head: u32) -> u32 {
  return ((place.first_head + head) * place.splits + place.split) * (params.value_pairs * 2u + 2u);
}

// Folds the tile [first, first + count) whose scores are in `score`, for the heads from `head0`.
fn fold_tile(l: u32, place: Place, head0: u32, first: u32, count: u32) {
  workgroupBarrier();
  for (var lane = 0u; lane < LANES; lane++) {
    var peak = LOWEST;
    for (var t = l; t < count; t += WG) { peak = max(peak, score[t * LANES + lane]); }
    fold[lane * WG + l] = peak;
  }
  workgroupBarrier();
  for (var i = l; i < LANES * REDUCERS; i += WG) {
    let at = (i / REDUCERS) * WG;
    var peak = LOWEST;
    for (var k = i % REDUCERS; k < WG; k += REDUCERS) { peak = max(peak, fold[at + k]); }
    fold[at + i % REDUCERS] = peak;
  }
  workgroupBarrier();
  for (var lane = l; lane < LANES; lane += WG) {
    var peak = LOWEST;
    for (var k = 0u; k < REDUCERS * params.once; k++) { peak = max(peak, fold[lane * WG + k]); }
    result[lane] = peak;
  }
  workgroupBarrier();
  var fade: array<vec4f, 4>;
  for (var q = 0u; q < QUADS; q++) {
    let peak = max(top[q], result_quad(q));
    fade[q] = exp2(max(top[q] - peak, vec4f(-200.0)));
    top[q] = peak;
    mass[q] *= fade[q];
  }
  for (var t = l; t < count; t += WG) {
    if (LANES == 1u) {
      let p = exp2(score[t] - top[0].x);
      score[t] = p;
      mass[0].x += p;
    } else {
      for (var q = 0u; q < QUADS; q++) {
        let p = exp2(score_quad(t, q) - top[q]);
        let at = t * LANES + q * 4u;
        score[at] = p.x;
        score[at + 1u] = p.y;
        score[at + 2u] = p.z;
        score[at + 3u] = p.w;
        mass[q] += p;
      }
    }
  }
  workgroupBarrier();
  add_values(l, place, head0, first, count, fade);
}

// o = o * fade + sum of p v. The running o lives in `partials`: each (lane, pair) belongs to one thread throughout.
fn add_values(l: u32, place: Place, head0: u32, first: u32, count: u32, fade: array<vec4f, 4>) {
  let span = min(WG, params.value_pairs);
  let share = l / span;
  for (var j0 = 0u; j0 < params.value_pairs; j0 += WG) {
    let j = j0 + l % span;
    var x: array<vec4f, 4>;
    var y: array<vec4f, 4>;
    for (var q = 0u; q < QUADS; q++) {
      x[q] = vec4f(0.0);
      y[q] = vec4f(0.0);
    }
    if (share < params.token_lanes && j < params.value_pairs) {
      var at = value_index(place.row, first + share, j, params.capacity, params.value_pairs);
      for (var t = share; t < count; t += params.token_lanes) {
        let v = load_pair(values[at]);
        at += params.token_lanes * params.value_pairs;
        if (LANES == 1u) {
          let p = score[t];
          x[0].x += p * v.x;
          y[0].x += p * v.y;
        } else {
          for (var q = 0u; q < QUADS; q++) {
            let p = score_quad(t, q);
            x[q] += p * v.x;
            y[q] += p * v.y;
          }
        }
      }
    }
    for (var q = 0u; q < QUADS; q++) {
      // Shares of four lanes meet in workgroup memory, then one thread a (lane, pair) adds them to the running sum.
      workgroupBarrier();
      for (var e = 0u; e < STEP_LANES; e++) {
        fold[2u * e * WG + l] = x[q][e];
        fold[(2u * e + 1u) * WG + l] = y[q][e];
        if (l == 0u) { result[q * 4u + e] = fade[q][e]; }
      }
      workgroupBarrier();
      let pairs = min(span, params.value_pairs - j0);
      for (var i = l; i < STEP_LANES * span; i += WG) {
        let e = i / span;
        let head = head0 + q * 4u + e;
        if (head < params.group && i % span < pairs) {
          var o = vec2f(0.0);
          for (var k = i % span; k < params.token_lanes * span; k += span) { o += vec2f(fold[2u * e * WG + k], fold[(2u * e + 1u) * WG + k]); }
          let at = partial_index(place, head) + 2u * (j0 + i % span);
          if (first > place.begin) { o += result[q * 4u + e] * vec2f(partials[at], partials[at + 1u]); }
          partials[at] = o.x;
          partials[at + 1u] = o.y;
        }
      }
    }
  }
}

// Writes m and l of the lanes; of an empty split also o = 0.
fn finish_lanes(l: u32, place: Place, head0: u32) {
  workgroupBarrier();
  for (var lane = 0u; lane < LANES; lane++) {
    fold[lane * WG + l] = mass[lane / 4u][lane % 4u];
    if (l == 0u) { result[lane] = top[lane / 4u][lane % 4u]; }
  }
  workgroupBarrier();
  for (var lane = l; lane < LANES && head0 + lane < params.group; lane += WG) {
    var sum = 0.0;
    for (var k = 0u; k < WG * params.once; k++) { sum += fold[lane * WG + k]; }
    let at = partial_index(place, head0 + lane) + params.value_pairs * 2u;
    partials[at] = result[lane];
    partials[at + 1u] = sum;
  }
  if (place.begin >= place.end) {
    for (var lane = 0u; lane < LANES && head0 + lane < params.group; lane++) {
      for (var i = l; i < params.value_pairs * 2u; i += WG) { partials[partial_index(place, head0 + lane) + i] = 0.0; }
    }
  }
  workgroupBarrier();
}
