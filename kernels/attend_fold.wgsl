// Shared by the split-KV decode kernels (attend, attend_rebuild, attend_block_absorbed): which tokens a split has, the online
// softmax over tiles of tokens, and the sum over value rows, which stays in registers. A kernel defines
//   fn score_of(place, lane, i) -> f32     the scaled score (base-2 logarithm) of the tile's token i, after a barrier
// and calls start_lanes, for every tile fold_tile, and finish_lanes.
//
//   m' = max(m, max_t s_t)    l' = l 2^(m - m') + sum_t 2^(s_t - m')    o' = o 2^(m - m') + sum_t 2^(s_t - m') v_t
//
// A workgroup is one (split, LANES query heads of a KV head, sequence). A sequence's cache is a run of pinned slots and a ring
// (`spans`: tokens pinned, position of the ring's first token, tokens in the ring); the first splits take the pinned ones.
// Value rows: WIDE threads share a row, VALUE_EACH units each; STREAM threads walk neighbouring rows, so that the memory of a
// subgroup is one run.
// Partials, [sequence][query head][split][value width + 2] f32: o (not yet divided by l), m (base 2), l.
#storage

override WG: u32;           // threads of a workgroup, a multiple of STREAM
override TILE: u32;         // tokens folded at a time, a multiple of WG
override LANES: u32;        // query heads of a workgroup, at most 4
override WIDE: u32;         // threads that share a row, divides STREAM or is a multiple of it
override STREAM: u32;       // threads that walk neighbouring rows
override VALUE_EACH: u32;   // units of a value row that a thread takes
override ACCUMULATORS: u32; // LANES * VALUE_EACH * UNIT_VECS, at most MOST_SUMS
override SCRATCH: u32;      // floats of the scratch space: at least WG * VALUE_EACH * UNIT, more where a kernel's scores want it
override SCORES: u32;       // 1: every score is also written to `scores`

// Shapes are uniforms where no array depends on them, so that one pipeline serves all contexts, ranks and groups.
struct Params {
  pinned: u32,         // slots of a row before its ring
  ring: u32,           // slots of the ring
  split_tokens: u32,   // tokens of a split
  pinned_splits: u32,  // splits that take pinned tokens
  first_split: u32,    // where this call's splits start among all of a query
  splits: u32,         // of a query, other calls' included
  scale: f32,          // of a score, times log2(e)
  once: u32,           // 1; as a factor of a loop's bound it keeps compilers from unrolling, which costs software drivers seconds
  row_shared: u32,     // 1: all KV heads of a sequence read the same cached row (LLA-2D, mla-head)
  group: u32,          // query heads that read the same cached row
  lane_groups: u32,    // workgroups that share a KV head: ceil(group / LANES)
  value_width: u32,
  branch_shared: u32,  // 1: all KV heads of a sequence read the same branch row
  pinned_query: u32,   // 1: pinned tokens meet the second set of queries
  query_sets: u32,     // distance of the second set, in queries
  key_width: u32,
  branch_width: u32,
  spare0: u32,
  spare1: u32,
  spare2: u32,
  keys: CachedRow,
  values: CachedRow,
  branch: CachedRow,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> keys: array<vec4u>;
@group(0) @binding(3) var<storage, read> values: array<vec4u>;
@group(0) @binding(4) var<storage, read_write> partials: array<f32>;
@group(0) @binding(5) var<storage, read> spans: array<vec4u>;
@group(0) @binding(6) var<storage, read_write> scores: array<f32>;   // [sequence][query head][slot]

const MOST_LANES = 4u;
const MOST_SUMS = 32u;
const LOWEST = -3.0e38;      // stands for minus infinity, which WGSL may assume away
const REDUCERS = 8u;         // entries that the first of the two steps of a reduction leaves of a lane

var<workgroup> weights_of: array<f32, TILE * LANES>;   // softmax weights of the tile, [lane][token]
var<workgroup> reduced: array<f32, WG * LANES>;        // [lane][thread]
var<workgroup> scratch: array<f32, SCRATCH>;            // of a kernel's scores until fold_tile; of the sums at the end
var<private> top: vec4f;      // running maximum of each lane, the same in all threads
var<private> mass: vec4f;     // this thread's share of each lane's running sum
var<private> sums: array<vec4f, MOST_SUMS>;   // [lane][unit][vec]

// Uniform over the workgroup, so it must not hold anything of the thread: barriers stand in loops over it.
struct Place {
  sequence: u32,
  kv_row: u32,       // sequence * KV heads + head
  row: u32,          // cached row: kv_row, or the sequence if its heads share a row
  first_head: u32,   // first query head of this workgroup, over all sequences
  lanes: u32,        // query heads of this workgroup
  split: u32,        // among all of a query
  pinned: bool,
  begin: u32,        // tokens [begin, end) of the run
  end: u32,
  phase: u32,        // ring slot of the run's token 0
  position: u32,     // of the ring's token 0
}

fn place_of(id: vec3u, groups: vec3u) -> Place {
  let span = spans[id.z];
  let head = id.y / params.lane_groups;
  let head0 = (id.y % params.lane_groups) * LANES;
  let kv_row = id.z * (groups.y / params.lane_groups) + head;
  let pinned = id.x < params.pinned_splits;
  let part = select(id.x - params.pinned_splits, id.x, pinned);
  let tokens = select(span.z, span.x, pinned);
  let begin = min(part * params.split_tokens, tokens);
  return Place(id.z, kv_row, select(kv_row, id.z, params.row_shared == 1u), kv_row * params.group + head0, min(LANES, params.group - head0),
    params.first_split + id.x, pinned, begin, min(begin + params.split_tokens, tokens), span.y % max(params.ring, 1u), span.y);
}

fn tiles_of_row() -> u32 { return (params.pinned + params.ring) / TILE_TOKENS; }

// Slot of token i of the run.
fn slot_of(place: Place, i: u32) -> u32 {
  let turned = place.phase + i;
  return select(params.pinned + turned - select(0u, params.ring, turned >= params.ring), i, place.pinned);
}

// The row of a tile that this thread starts with, and the step to its next.
fn first_row(l: u32) -> u32 {
  if (WIDE >= STREAM) { return (l / WIDE) * (TILE / (WG / WIDE)); }
  return (l / STREAM) * (TILE / (WG / STREAM)) + (l % STREAM) / WIDE;
}
fn row_step() -> u32 { return max(1u, STREAM / WIDE); }
fn rows_each() -> u32 { return TILE / (WG / max(STREAM, WIDE)); }

fn start_lanes() {
  top = vec4f(LOWEST);
  mass = vec4f(0.0);
  for (var k = 0u; k < ACCUMULATORS; k++) { sums[k] = vec4f(0.0); }
}

// Folds the tile [first, first + count).
fn fold_tile(l: u32, place: Place, first: u32, count: u32) {
  var peak = vec4f(LOWEST);
  for (var lane = 0u; lane < LANES; lane++) {
    for (var i = l; i < TILE * params.once; i += WG) {
      var s = LOWEST;
      if (i < count) {
        s = score_of(place, lane, i);
        if (SCORES == 1u && lane < place.lanes) { scores[(place.first_head + lane) * (params.pinned + params.ring) + slot_of(place, first + i)] = s; }
      }
      weights_of[lane * TILE + i] = s;
      peak[lane] = max(peak[lane], s);
    }
    reduced[lane * WG + l] = peak[lane];
  }
  workgroupBarrier();
  for (var i = l; i < LANES * REDUCERS; i += WG) {
    let at = (i / REDUCERS) * WG;
    var most = LOWEST;
    for (var k = i % REDUCERS; k < WG * params.once; k += REDUCERS) { most = max(most, reduced[at + k]); }
    reduced[at + i % REDUCERS] = most;
  }
  workgroupBarrier();
  peak = top;
  for (var lane = 0u; lane < LANES; lane++) {
    for (var k = 0u; k < REDUCERS * params.once; k++) { peak[lane] = max(peak[lane], reduced[lane * WG + k]); }
  }
  let fade = exp2(max(top - peak, vec4f(-200.0)));
  top = peak;
  mass *= fade;
  for (var lane = 0u; lane < LANES; lane++) {
    for (var k = 0u; k < VALUE_EACH * UNIT_VECS; k++) { sums[lane * VALUE_EACH * UNIT_VECS + k] *= fade[lane]; }
    for (var i = l; i < TILE * params.once; i += WG) {
      let p = select(0.0, exp2(weights_of[lane * TILE + i] - top[lane]), i < count);
      weights_of[lane * TILE + i] = p;
      mass[lane] += p;
    }
  }
  workgroupBarrier();
  let c = l % WIDE;
  let row0 = first_row(l);
  for (var i = row0; i < row0 + rows_each() * params.once; i += row_step()) {
    // Rows past the end repeat the last one, with weight 0.
    let token = token_at(params.values, place.row, tiles_of_row(), slot_of(place, min(first + i, place.end - 1u)));
    var p: array<f32, MOST_LANES>;
    for (var lane = 0u; lane < LANES; lane++) { p[lane] = weights_of[lane * TILE + i]; }
    for (var k = 0u; k < VALUE_EACH; k++) {
      let v = load_unit(&values, params.values, token, min(c + WIDE * k, params.values.units - 1u));
      for (var lane = 0u; lane < LANES; lane++) {
        for (var e = 0u; e < UNIT_VECS; e++) {
          let at = (lane * VALUE_EACH + k) * UNIT_VECS + e;
          sums[at] = fma(vec4f(p[lane]), v[e], sums[at]);
        }
      }
    }
  }
  // The next tile's scores may overwrite the weights.
  workgroupBarrier();
}

// Adds up the threads' shares and writes the partials.
fn finish_lanes(l: u32, place: Place) {
  let stride = params.value_width + 2u;
  for (var lane = 0u; lane < LANES; lane++) {
    let out = ((place.first_head + lane) * params.splits + place.split) * stride;
    for (var k = 0u; k < VALUE_EACH * UNIT_VECS; k++) {
      let sum = sums[lane * VALUE_EACH * UNIT_VECS + k];
      scratch[(4u * k) * WG + l] = sum.x;
      scratch[(4u * k + 1u) * WG + l] = sum.y;
      scratch[(4u * k + 2u) * WG + l] = sum.z;
      scratch[(4u * k + 3u) * WG + l] = sum.w;
    }
    reduced[l] = mass[lane];
    workgroupBarrier();
    if (lane < place.lanes) {
      for (var i = l; i < params.value_width * params.once; i += WG) {
        let unit = i / UNIT;
        let at = ((unit / WIDE) * UNIT + i % UNIT) * WG + unit % WIDE;
        var sum = 0.0;
        for (var r = 0u; r < WG * params.once; r += WIDE) { sum += scratch[at + r]; }
        partials[out + i] = sum;
      }
      if (l == 0u) {
        var sum = 0.0;
        for (var k = 0u; k < WG * params.once; k++) { sum += reduced[k]; }
        partials[out + params.value_width] = top[lane];
        partials[out + params.value_width + 1u] = sum;
      }
    }
    workgroupBarrier();
  }
}
